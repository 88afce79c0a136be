"""An InferenceService with the seed's numbers, and edits of it by path."""

from __future__ import annotations

import copy
from typing import Any

Object = dict[str, Any]

ABSENT = object()  # as the value of an edit: remove the field
BASE: Object = {
    "apiVersion": "radix-islands.dev/v1alpha1",
    "kind": "InferenceService",
    "metadata": {"name": "gemma", "namespace": "default"},
    "spec": {
        "model": {"name": "google/gemma-4-26b", "source": {"pvc": "weights"}},
        "engine": {"image": "registry.example/islands/engine:1", "args": ["--tp", "1"]},
        "partition": {
            "islands": {"swaFullTokensRatio": "0.17", "maxTotalTokens": 980_000},
            "stock": {"swaFullTokensRatio": "0.32", "maxTotalTokens": 740_000},
        },
        "geometry": {"slidingWindow": 1024},
    },
}
DERIVED: Object = {  # edits that leave the pair to the geometry
    "partition": ABSENT,
    "geometry": {
        "slidingWindow": 1024,
        "fullBytesPerToken": 9_500,
        "swaBytesPerToken": 95_000,
        "draftBytesPerToken": 10_240,
        "kvBudgetBytes": 37_000_000_000,
    },
}


def resource(edits: Object | None = None, name: str = "gemma") -> Object:
    """BASE under a name, with `{"path/in/spec": value}` put in."""
    made = copy.deepcopy(BASE)
    made["metadata"]["name"] = name
    for path, value in (edits or {}).items():
        *parents, last = path.split("/")
        inner = made["spec"]
        for parent in parents:
            inner = inner.setdefault(parent, {})
        if value is ABSENT:
            del inner[last]
        else:
            inner[last] = copy.deepcopy(value)
    return made
