"""Does a live object still say what we want it to say? Foreign fields are left alone; coupled variables never are."""

from __future__ import annotations

import copy
import hashlib
import json
from typing import TYPE_CHECKING, Any

from island_operator.api.rules import COUPLED_ENV
from island_operator.core.merge import MERGE_KEYS

if TYPE_CHECKING:
    from island_operator.core.model import Object

# Of the whole manifest: a field that we stop sending must be noticed too, and no comparison with the live object can.
DIGEST = "radix-islands.dev/manifest"
_KEYS = MERGE_KEYS | {"ownerReferences": "uid"}


def signed(obj: Object) -> Object:
    """The manifest with the digest of itself."""
    digest = hashlib.sha256(json.dumps(obj, sort_keys=True).encode()).hexdigest()[:12]
    meta = obj["metadata"]
    return {**obj, "metadata": {**meta, "annotations": {**meta.get("annotations", {}), DIGEST: digest}}}


def covers(live: Object, want: Object) -> bool:
    """Whether applying `want` would change nothing in `live`, and no coupled variable was added to it."""
    return _covers(live, want) and cleaned(live, want) is None


def _covers(live: Any, want: Any, key: str = "") -> bool:
    """Lists that the API server merges by name are compared by name, because another manager's entries may stand
    between ours; other lists must be equal.
    """
    if live == want:  # nearly always, and much faster than to walk it
        return True
    if isinstance(want, dict):
        return isinstance(live, dict) and all(k in live and _covers(live[k], v, k) for k, v in want.items())
    if isinstance(want, list):
        if not isinstance(live, list):
            return False
        if (name := _KEYS.get(key)) and all(isinstance(entry, dict) and name in entry for entry in (*live, *want)):
            have = {entry[name]: entry for entry in live}
            return all(entry[name] in have and _covers(have[entry[name]], entry) for entry in want)
        return len(live) == len(want) and all(_covers(a, b) for a, b in zip(live, want, strict=True))
    return False


def cleaned(live: Object, want: Object) -> Object | None:
    """`live` without the coupled variables that somebody else added, to be written back by PUT; None when it has none.

    Server-side apply cannot remove another manager's entry, so the runtime has to replace the object.
    """
    wanted = {(c["name"], e["name"]) for c in _containers(want) for e in c.get("env", ())}

    def foreign(container: Object, entry: Object) -> bool:
        return entry["name"] in COUPLED_ENV and (container["name"], entry["name"]) not in wanted

    if not any(foreign(c, e) for c in _containers(live) for e in c.get("env") or ()):
        return None  # nearly always, and asked of every child in every pass: nothing is copied
    clean = copy.deepcopy(live)
    for container in _containers(clean):
        if env := container.get("env"):
            container["env"] = [entry for entry in env if not foreign(container, entry)]
    return clean


def _containers(obj: Object) -> list[Object]:
    spec = ((obj.get("spec") or {}).get("template") or {}).get("spec") or {}
    return [*spec.get("initContainers", ()), *spec.get("containers", ())]
