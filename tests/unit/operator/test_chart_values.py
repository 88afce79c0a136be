"""The chart's values: described, checked by the schema, and used."""

import itertools
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts/radix-islands"


def schema():
    return yaml.safe_load((CHART / "values.schema.json").read_text())


def values():
    return yaml.safe_load((CHART / "values.yaml").read_text())


def free(node):
    """A part of the schema below which names are the user's own."""
    return "properties" not in node


def properties(node, prefix=""):
    for name, inner in node.get("properties", {}).items():
        yield prefix + name
        yield from properties(inner, f"{prefix}{name}.")


def keys(given, node, prefix=""):
    for name, value in given.items():
        yield prefix + name
        inner = node["properties"][name]
        if not free(inner) and isinstance(value, dict):
            yield from keys(value, inner, f"{prefix}{name}.")


LEAVES_OUT = {"global", *(f"resources.{name}" for name in ("requests", "limits", "claims"))}
LEAVES_OUT |= {f"affinity.{name}" for name in ("nodeAffinity", "podAffinity", "podAntiAffinity")}


def test_every_value_is_in_the_schema_and_every_default_is_valid():
    jsonschema.validate(values(), schema())
    assert set(keys(values(), schema())) - LEAVES_OUT == set(properties(schema())) - LEAVES_OUT


def test_the_schema_lets_no_unknown_name_in():
    def objects(node, path=""):
        if "properties" in node:
            yield path, node
        for name, inner in node.get("properties", {}).items():
            yield from objects(inner, f"{path}.{name}")
        if "items" in node:
            yield from objects(node["items"], f"{path}[]")

    assert [path for path, node in objects(schema()) if node.get("additionalProperties") is not False] == []


def test_every_value_has_a_comment_that_says_what_it_is_for():
    lines = (CHART / "values.yaml").read_text().splitlines()
    silent = []
    for before, line in itertools.pairwise(lines):
        key = re.match(r"( *)([A-Za-z]+):(.*)", line)
        group = key and not key[3].strip()  # its members are described one by one
        if key and not group and key[2] not in {"requests", "limits"} and "#" not in before:
            silent.append(line)
    assert silent == []


def test_every_value_is_used_and_every_used_one_exists():
    text = "\n".join(path.read_text() for path in (CHART / "templates").iterdir())
    used_values = set(re.findall(r"\.Values\.([A-Za-z.]+)", text))
    for name in used_values:
        node = values()
        for part in name.split("."):
            assert part in node, f".Values.{name}"
            node = node[part]
    tops = {name.split(".")[0] for name in used_values}
    assert tops == set(values())


@pytest.mark.parametrize(
    "wrong", [{"replica": 2}, {"image": {"repository": ""}}, {"port": 80}, {"replicas": 0}, {"logFormat": "xml"}]
)
def test_values_that_nobody_reads_are_refused(wrong):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**values(), **wrong}, schema())
