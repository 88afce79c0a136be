"""What the documentation shows can be typed: commands parse, files and targets exist, YAML and patches fit the CRD."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from island_engine import cli as engine
from island_engine.gate import cli as gate
from island_engine.gate import page as report_page
from island_operator.api import crd
from island_operator.cli import main as operator
from island_operator.cli.kubectl import app as kubectl

ROOT = Path(__file__).resolve().parents[3]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
}
EVERYTHING = "\n".join(PAGES.values())
TARGETS = set(re.findall(r"^([a-z][a-z0-9-]*(?: [a-z][a-z0-9-]*)*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
TARGETS = {name for names in TARGETS for name in names.split()}
KIND = crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def fences(*languages: str) -> list[tuple[str, str]]:
    """(page, text) of every fence in one of these languages, indentation taken off."""
    found = []
    for page, text in PAGES.items():
        for indent, language, body in re.findall(r"^( *)```(\w*)\n(.*?)^\1```", text, re.MULTILINE | re.DOTALL):
            if language in languages:
                found.append((page, "\n".join(line.removeprefix(indent) for line in body.splitlines())))
    return found


def commands() -> list[tuple[str, list[str]]]:
    """(page, words) of every command that a reader would type, after `&&`, `|` and `$(` too."""
    found = []
    for page, text in fences("sh", "", "console"):
        shown = text
        if "$ " in shown:
            shown = "\n".join(re.findall(r"^\$ (.*)", shown, re.MULTILINE))
        for line in shown.replace("\\\n", " ").splitlines():
            with contextlib.suppress(ValueError):  # prose or output with one quote
                words = shlex.split(line, comments=True)
                while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                    words = words[1:]
                if words:
                    found.append((page, [Path(words[0]).name, *words[1:]]))
    return found


def ours() -> list[Any]:
    """Those of our own programs."""
    found = []
    for page, words in commands():
        if words[:2] == ["kubectl", "island"]:
            words = ["kubectl-island", *words[2:]]
        if words[0] in {"island-engine", "island-operator", "kubectl-island"}:
            found.append(pytest.param(words, id=f"{page}: {' '.join(words)}"))
    return found


@pytest.mark.parametrize("words", ours())
def test_commands_parse(words):
    """By the parsers of the programs themselves; --help may end them."""
    program, *given = words
    for end in ("|", ">"):
        given = given[: given.index(end)] if end in given else given
    parser = {"island-engine": engine.parser, "kubectl-island": kubectl.parser}.get(program, operator.parser)
    made = parser() if program == "island-operator" else parser(given[0])
    read = made.parse_known_args if given[0] == "serve" else made.parse_args  # the rest is SGLang's
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            code = 0 if read(given) else 1
        except SystemExit as ended:
            code = ended.code
    assert code == 0, said.getvalue()


def test_there_are_commands_of_every_program():
    assert {param.values[0][0] for param in ours()} == {"island-engine", "kubectl-island"}
    assert len(ours()) > 15


def test_every_target_of_make_exists():
    shown = {words[1] for _, words in commands() if words[0] == "make" and len(words) > 1}
    shown |= set(re.findall(r"`make ([a-z][a-z-]+)[^`]*`", EVERYTHING))
    assert len(shown) > 8
    assert shown - TARGETS == set()


def strict(schema: dict[str, Any], *, whole: bool) -> dict[str, Any]:
    """The schema with unknown fields refused; `whole` False: nothing is required, as in a patch or a fragment."""
    made = {key: value for key, value in schema.items() if whole or key != "required"}
    if "properties" in made:
        made["properties"] = {name: strict(child, whole=whole) for name, child in made["properties"].items()}
        made["additionalProperties"] = made.get("x-kubernetes-preserve-unknown-fields", False)
    if isinstance(made.get("items"), dict):
        made["items"] = strict(made["items"], whole=whole)
    return made


def objects(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Every object of the schema that names its fields, outermost first."""
    found = [schema] if "properties" in schema else []
    children = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
    return found + [one for child in children for one in objects(child)]


def complete() -> dict[str, Any]:
    """The kind as one writes it: with what every object has, without status."""
    properties = {**KIND["properties"], **{key: {} for key in ("apiVersion", "kind", "metadata")}}
    return {**KIND, "properties": properties}


def check(value: Any, *, whole: bool) -> None:
    jsonschema.Draft202012Validator(strict(complete(), whole=whole)).validate(value)


def test_the_check_refuses_what_does_not_exist():
    check({"spec": {"islands": {"enabled": True}}}, whole=False)
    for wrong in ({"islands": {"enable": True}}, {"islands": {"enabled": "yes"}}, {"replica": 1}):
        with pytest.raises(jsonschema.ValidationError):
            check({"spec": wrong}, whole=False)


def test_every_yaml_fits_the_kind():
    """A whole object, one that begins with spec, or the inside of any field; other kinds are not ours to check."""
    seen = 0
    for page, text in fences("yaml"):
        for value in yaml.safe_load_all(text):
            if "kind" in value and value["kind"] != "InferenceService":
                continue
            if "kind" in value or "spec" in value:
                check(value, whole="kind" in value)
                seen += 1
                continue
            fits = [o for o in objects(KIND["properties"]["spec"]) if set(value) <= set(o["properties"])]
            assert fits, f"{page}: no field of the CRD holds {', '.join(value)}"
            validator = jsonschema.Draft202012Validator(strict(fits[0], whole=False))
            assert [error.message for error in validator.iter_errors(value)] == [], page
            seen += 1
    assert seen >= 2


def test_every_patch_is_json_and_of_fields_that_exist():
    patches = re.findall(r"-p '(\{.*?\})'", EVERYTHING)
    assert len(patches) >= 4
    for patch in patches:
        check(json.loads(patch), whole=False)


def test_every_file_that_a_command_names_is_there():
    named = set(re.findall(r"(?<![\w/.-])((?:examples|charts|e2e|docs|crds|locks)/[\w./-]*\w)", EVERYTHING))
    assert len(named) > 20
    written = {"docs/bench/operator.json", "docs/img/operator.png"}  # by a whole run of make bench-operator
    assert {path for path in named - written if not (ROOT / path).exists()} == set()


def test_every_link_out_of_the_documentation_leads_to_a_file():
    """Those inside are mkdocs' to check (--strict)."""
    missing = []
    for page, text in PAGES.items():
        links = re.findall(r"\]\(((?!https?:|#|mailto:)[^)#\s]+)", text)
        missing += [f"{page}: {link}" for link in links if not (ROOT / page).parent.joinpath(link).exists()]
        own = re.findall(r"https://github\.com/radix-islands/radix-islands/(?:blob|tree)/main/([^)#\s]+)", text)
        missing += [f"{page}: {link}" for link in own if not (ROOT / link).exists()]
    assert missing == []


def test_every_value_of_the_chart_that_is_set_exists():
    values = yaml.safe_load((ROOT / "charts/radix-islands/values.yaml").read_text())
    names = {name for pair in re.findall(r"--set[= ]([^\s`]+)", EVERYTHING) for name in re.findall(r"([\w.]+)=", pair)}
    assert len(names) >= 2
    for name in names:
        *path, last = name.split(".")
        node = values
        for part in path:
            node = node[part]
        assert last in node or node == {}, name


def test_every_metric_of_ours_that_is_named_is_counted_somewhere():
    source = "".join(
        path.read_text()
        for folder in ("operator", "engine", "charts/radix-islands/files")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".yaml", ".json"}
    )
    named = set(re.findall(r"`(island_(?!engine|operator\b)[a-z_]+)(?:\{[^`]*)?`", EVERYTHING))
    assert len(named) > 15
    assert {name for name in named if re.sub("_total$", "", name) not in source} == set()


def test_every_field_that_is_named_exists():
    """`rollout.mode`, `spec.gate.schedule`, `status.gate.report`, `partition.*.maxTotalTokens`."""
    tops = "|".join(KIND["properties"]["spec"]["properties"])
    missing = []
    named = set(re.findall(rf"`((?:spec\.|status\.)?(?:{tops})(?:\.[A-Za-z*]+)+)\b[^`]*`", EVERYTHING))
    assert len(named) > 15
    for name in named:
        part, path = ("status", name[7:]) if name.startswith("status.") else ("spec", name.removeprefix("spec."))
        nodes = [KIND["properties"][part]]
        for step in path.split("."):
            nodes = [n for node in nodes for n in following(node, step)]
        if not nodes and not name.endswith((".md", ".py", ".json", ".yaml")):
            missing.append(name)
    assert missing == []


def following(node: dict[str, Any], step: str) -> list[dict[str, Any]]:
    """The schemas behind a step; `*` is any."""
    node = node.get("items", node)
    properties = node.get("properties", {})
    if step == "*":
        return list(properties.values())
    if node.get("x-kubernetes-preserve-unknown-fields"):
        return [node]
    return [properties[step]] if step in properties else []


def test_every_reason_that_the_gate_page_names_is_one():
    source = "".join(path.read_text() for path in Path(gate.__file__).parent.glob("*.py"))
    rows = [line for line in PAGES["docs/gate.md"].splitlines() if re.match(r"\| (INCONCLUSIVE|ERROR) ", line)]
    reasons = {word for row in rows for word in re.findall(r"`([A-Z]\w+)`", row)}
    assert len(reasons) > 8
    assert {word for word in reasons if f'"{word}"' not in source} == set()


def test_the_headings_of_the_gates_page_that_are_explained_are_those_that_there_are():
    source = Path(report_page.__file__).read_text()
    there = set(re.findall(r"<h2>([A-Z][^<{]+)</h2>", source)) | set(re.findall(r'"([A-Z][\w-]+ pool)"', source))
    part = PAGES["docs/gate.md"].split("## The report, line by line")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([A-Z][^|]+?) \|", part, re.MULTILINE)
    told = {name for row in rows for name in re.split(r"(?<=pool), ", row)}
    assert told == there
