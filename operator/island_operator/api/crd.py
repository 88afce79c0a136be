"""The CustomResourceDefinition, generated from the pydantic models: pydantic's JSON schema made structural.

A structural schema (Kubernetes: CustomResourceDefinition versioning) has no $ref, no anyOf around types, no const, and
boolean exclusive bounds.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import yaml

from island_operator.api import rules
from island_operator.api.schema import VALIDATIONS
from island_operator.api.spec import Spec
from island_operator.api.status import Status

if TYPE_CHECKING:
    from pydantic import BaseModel

GROUP, VERSION, KIND, PLURAL, SHORT = "radix-islands.dev", "v1alpha1", "InferenceService", "inferenceservices", "iisvc"
NAME_LENGTH = 44  # the longest child is a Job's pod: NAME-gate-HASH10-xxxxx, and a label value holds 63

Schema = dict[str, Any]


def structural(node: Schema, definitions: Schema) -> Schema:
    """One JSON-schema node as a structural node."""
    node = dict(node)
    if reference := node.pop("$ref", None):  # what stands beside the reference (description, default) wins
        node = {**definitions[reference.rsplit("/", 1)[-1]], **node}
    node.pop("title", None)
    if union := node.pop("anyOf", None):
        return _optional(union, node, definitions)
    if isinstance(node.get("default"), dict):
        node["default"] = {}  # the inner fields have their own defaults; a dumped None would be an invalid null
    for bound, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if bound in node:
            node[limit], node[bound] = node[bound], True
    if node.get("type") == "integer":
        node.setdefault("format", "int64")
    if node.get("type") == "object":
        _object(node, definitions)
    if "items" in node:
        node["items"] = structural(node["items"], definitions)
    return node


def _optional(union: list[Schema], node: Schema, definitions: Schema) -> Schema:
    """`X | None`: nullable, because server-side apply turns an emptied object into null; never a default."""
    some = [a for a in union if a.get("type") != "null"]
    if len(some) != 1:
        raise TypeError(f"only optional unions have a structural form: {union}")
    if node.get("default", ...) is None:
        del node["default"]
    return {**structural(some[0], definitions), **node, "nullable": True}


def _object(node: Schema, definitions: Schema) -> None:
    extra = node.pop("additionalProperties", None)
    if "properties" in node:
        node["properties"] = {k: structural(v, definitions) for k, v in node["properties"].items()}
    elif isinstance(extra, dict) and extra:
        node["additionalProperties"] = structural(extra, definitions)
    else:  # dict[str, Any]: a pod template, a toleration
        node["x-kubernetes-preserve-unknown-fields"] = True


def schema(model: type[BaseModel]) -> Schema:
    """The structural schema of a model."""
    raw = model.model_json_schema(by_alias=True)
    return structural({k: v for k, v in raw.items() if k != "$defs"}, raw.get("$defs", {}))


def condition(kind: str, field: str = "status") -> str:
    """JSONPath of a condition's field."""
    return f'.status.conditions[?(@.type=="{kind}")].{field}'


def column(name: str, path: str, kind: str = "string") -> Schema:
    """A printer column."""
    return {"name": name, "type": kind, "jsonPath": path}


def definition() -> Schema:
    """The whole CRD, the caller's to change."""
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            column("Ready", condition("Ready")),
            column("Islands", ".status.islands.enabled", "boolean"),
            column("Ratio", ".status.islands.ratio"),
            column("Phase", ".status.phase"),
            column("Gate", ".status.gateVerdict"),
            column("Replicas", ".status.readyReplicas", "integer"),
            column("Reason", condition("Ready", "reason")),
            column("Age", ".metadata.creationTimestamp", "date"),
        ],
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "description": "One served model on one pool of identical GPU pods, with islands and pool partition coupled.",
                "required": ["spec"],
                VALIDATIONS: [rules.NAME],
                "properties": {
                    "apiVersion": {"type": "string"},
                    "kind": {"type": "string"},
                    "metadata": {
                        "type": "object",
                        "properties": {"name": {"type": "string", "maxLength": NAME_LENGTH}},
                    },
                    "spec": schema(Spec),
                    "status": schema(Status),
                },
            }
        },
    }
    names = {"kind": KIND, "listKind": f"{KIND}List", "plural": PLURAL, "singular": KIND.lower(), "shortNames": [SHORT]}
    made = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }
    return copy.deepcopy(made)  # the rules in it are the models' own


class _Plain(yaml.SafeDumper):
    """YAML without anchors: kubectl reads them, people do not."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def render() -> str:
    """The CRD as YAML, the same bytes for the same models."""
    return yaml.dump(definition(), Dumper=_Plain, sort_keys=False, width=1_000_000, allow_unicode=True)
