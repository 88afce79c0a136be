"""The CRD's schema as a page for people: every field with its type, bounds, default and description, and what it refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    Schema = dict[str, Any]

HEAD = """# Reference of InferenceService

Generated from the CRD by `island-operator crd --reference`. `kubectl explain iisvc.spec --recursive` says the same. The API
server refuses what breaks a bound or a rule, with the field and the value to use; the last section lists those sentences.
"""


def render(crd: Schema) -> str:
    """Markdown of the storage version of a CustomResourceDefinition."""
    version = next(v for v in crd["spec"]["versions"] if v["storage"])
    top = version["schema"]["openAPIV3Schema"]["properties"]
    group, names = crd["spec"]["group"], crd["spec"]["names"]
    parts = [HEAD, f"`{group}/{version['name']}`, kind `{names['kind']}`, short name `{names['shortNames'][0]}`.\n"]
    for part in ("spec", "status"):
        parts.append(f"## {part}\n")
        parts += ["| field | type | default | what it is |", "|---|---|---|---|"]
        parts += [_row(path, schema) for path, schema in _fields(top[part], part)]
        parts.append("")
    parts.append("## What is refused\n")
    parts += [f"- {told}" for told in dict.fromkeys(_rules(top["spec"]))]
    return "\n".join(parts) + "\n"


def _fields(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """Depth first, as the schema orders them."""
    for name, child in schema.get("properties", {}).items():
        here = f"{path}.{name}"
        yield here, child
        yield from _fields(child, here)
        if items := child.get("items", {}).get("properties"):
            yield from _fields({"properties": items}, f"{here}[]")


def _row(path: str, schema: Schema) -> str:
    default = f"`{_spelled(schema['default'])}`" if "default" in schema else ""
    return f"| `{path}` | {_type(schema)} | {default} | {_cell(schema.get('description', ''))} |"


def _type(schema: Schema) -> str:
    kind = str(schema.get("type", "any"))
    if kind == "array":
        return f"list of {_type(schema['items'])}"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"] if value is not None)
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and most is not None:
        return f"{kind}, {least:,} to {most:,}"
    return kind


def _spelled(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return (
        "{}" if value == {} else "[]" if value == [] else "set below" if isinstance(value, dict) else str(value) or '""'
    )


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _rules(schema: Schema) -> Iterator[str]:
    """What CEL rules say, without values that only a rejected object has."""
    for rule in schema.get("x-kubernetes-validations", ()):
        yield _cell(rule["message"])
    for child in (
        *schema.get("properties", {}).values(),
        schema.get("items", {}),
        schema.get("additionalProperties", {}),
    ):
        if isinstance(child, dict) and child:
            yield from _rules(child)
