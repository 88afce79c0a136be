"""The CRD is what the models say, structural, bounded and described; what only an API server can tell is in
tests/integration/operator.
"""

import re

import pytest
import yaml
from support import schema
from support.control_plane import CRD

from island_operator.api import crd, rules
from island_operator.api.schema import VALIDATIONS

ROOT = schema.root()
NODES = {
    ".".join(path) or "root": node for path, node in schema.nodes(ROOT) if path not in {("apiVersion",), ("kind",)}
}
SPEC = {name: node for name, node in NODES.items() if name.split(".")[0] == "spec"}
STATUS = {name: node for name, node in NODES.items() if name.split(".")[0] == "status"}
RULES = [
    pytest.param(node, one, id=f"{name}-{i}")
    for name, node in NODES.items()
    for i, one in enumerate(node.get(VALIDATIONS, ()))
]
STRUCTURAL = {
    "type", "format", "description", "default", "nullable", "enum", "pattern", "required", "properties", "items",
    "additionalProperties", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength",
    "minItems", "maxItems", "maxProperties", VALIDATIONS, "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
}  # fmt: skip


def test_the_file_is_what_the_models_say():
    assert CRD.read_text(encoding="utf-8") == crd.render()


def test_the_file_reads_back_as_the_definition():
    assert yaml.safe_load(crd.render()) == crd.definition()


@pytest.mark.parametrize("node", NODES.values(), ids=NODES)
def test_a_node_is_structural_and_bounded(node):
    assert set(node) <= STRUCTURAL
    match node["type"]:
        case "string":
            assert "enum" in node or node["maxLength"] > 0
        case "array":
            assert node["maxItems"] > 0
            assert node["x-kubernetes-list-type"] in {"atomic", "map"}
        case "object":
            kinds = {"properties", "additionalProperties", "x-kubernetes-preserve-unknown-fields"} & set(node)
            assert len(kinds) == 1
            assert "additionalProperties" not in kinds or node["maxProperties"] > 0
        case "integer":
            assert node["format"] == "int64"
            assert "exclusiveMinimum" not in node
        case other:
            assert other in {"boolean", "number"}


@pytest.mark.parametrize("node", SPEC.values(), ids=SPEC)
def test_what_rules_compute_with_is_bounded_at_both_ends(node):
    assert node["type"] != "integer" or node["minimum"] <= node["maximum"]


@pytest.mark.parametrize("name", [name for name in {**SPEC, **STATUS} if not name.endswith(("[]", "{}"))])
def test_every_field_is_described(name):
    text = NODES[name]["description"]
    assert len(text) > 3
    assert text.endswith(".")


def test_status_has_no_defaults_because_each_would_be_a_write_per_event():
    assert [name for name, node in STATUS.items() if "default" in node] == []


def test_what_may_be_left_out_may_be_null_unless_it_has_a_default():
    """Server-side apply turns an emptied object into null."""
    for name, node in {**SPEC, **STATUS}.items():
        needed = node.get("required", [])
        for field, inner in node.get("properties", {}).items():
            assert (field in needed) + ("default" in inner) + inner.get("nullable", False) == 1, f"{name}.{field}"


def test_no_field_reads_as_a_boolean_in_yaml():
    for name, node in NODES.items():
        for field in node.get("properties", {}):
            assert yaml.safe_load(field) == field, name


@pytest.mark.parametrize(("node", "rule"), RULES)
def test_a_rule_says_one_sentence_and_reads_what_is_there(node, rule):
    assert set(rule) <= {"rule", "message", "messageExpression", "fieldPath", "optionalOldSelf"}
    for text in (rule["message"], rule.get("messageExpression", "")):
        assert "\n" not in text
        assert not re.search(r"[.!?] [A-Z]|[.!]'?$", text), text
    if "fieldPath" in rule:
        inner = node
        for part in rule["fieldPath"].removeprefix(".").split("."):
            inner = inner["properties"][part]
    assert rule.get("optionalOldSelf", False) == ("oldSelf.hasValue()" in rule["rule"])


def test_the_places_that_must_have_rules_have_them():
    """A decorator lost in a refactoring would leave a schema that is still valid."""
    having = {name for name, node in NODES.items() if VALIDATIONS in node}
    assert having >= {
        "root", "spec", "spec.partition", "spec.partition.islands.swaFullTokensRatio", "spec.engine",
        "spec.partition.stock.swaFullTokensRatio", "spec.engine.args.[]", "spec.engine.env.[].name", "spec.model.name",
        "spec.model.source", "spec.model.source.hostPath", "spec.rollout.steps", "spec.rollout.deadline",
        "spec.gate.deadline",
    }  # fmt: skip


@pytest.mark.parametrize("flag", rules.COUPLED_FLAGS)
def test_a_coupled_flag_is_spelled_as_argparse_does(flag):
    assert re.fullmatch(r"--[a-z]+(-[a-z]+)*", flag)


def test_the_mutation_switch_of_the_gate_is_not_coupled():
    assert not {"ISLAND_MUTATE", "ISLAND_ALLOW_MUTATION"} & set(rules.COUPLED_ENV)


def test_a_union_of_two_types_has_no_structural_form():
    with pytest.raises(TypeError, match="only optional unions"):
        crd.structural({"anyOf": [{"type": "string"}, {"type": "integer"}]}, {})


def test_bounds_that_exclude_become_flags_of_the_bound():
    node = crd.structural({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, {})
    assert node == {"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": 1, "exclusiveMaximum": True}


def test_columns_read_what_the_schema_has():
    for column in crd.definition()["spec"]["versions"][0]["additionalPrinterColumns"]:
        path = re.sub(r"\[\?.*?\]", ".[]", column["jsonPath"]).strip(".").replace("..", ".")
        if not path.startswith("metadata."):
            assert NODES[path]["type"] == column["type"], column
