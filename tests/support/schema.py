"""Walks over the CRD's structural schema, so that a test covers a new field without being told of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from island_operator.api import crd

if TYPE_CHECKING:
    from collections.abc import Iterator

Node = dict[str, Any]
Path = tuple[str, ...]


def root() -> Node:
    """openAPIV3Schema of the only version."""
    found: Node = crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def nodes(node: Node, at: Path = ()) -> Iterator[tuple[Path, Node]]:
    """Every node with its path: `[]` are a list's items, `{}` a map's values."""
    yield at, node
    for name, inner in node.get("properties", {}).items():
        yield from nodes(inner, (*at, name))
    if "items" in node:
        yield from nodes(node["items"], (*at, "[]"))
    if "additionalProperties" in node:
        yield from nodes(node["additionalProperties"], (*at, "{}"))


def full(node: Node, items: int = 1, text: str = "Word") -> Any:
    """A value with every field set; lists of `items` at most (a map list gets as many keys)."""
    if "properties" in node:
        return {name: full(inner, items, text) for name, inner in node["properties"].items()}
    if "enum" in node:
        return node["enum"][0]
    match node["type"]:
        case "object":
            return {"at": [1, "a", None]} if node.get("x-kubernetes-preserve-unknown-fields") else {"key": text}
        case "array":
            many = [full(node["items"], items, text) for _ in range(min(items, node["maxItems"]))]
            for key in node.get("x-kubernetes-list-map-keys", ()):
                for index, item in enumerate(many):
                    item[key] = f"{key}{index}"
            return many
        case "string" if node.get("format") == "date-time":
            return "2026-01-01T00:00:00Z"
        case "string":
            return text[: node["maxLength"]]
        case "integer":
            return max(1, node.get("minimum", 1))
        case "number":
            return 1.5
        case "boolean":
            return True
    raise TypeError(f"not a structural type: {node}")
