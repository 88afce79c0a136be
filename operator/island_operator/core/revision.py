"""Revisions: everything that makes pods differ, under one name."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from island_engine import drafts, sizing
from island_operator.core.coupling import UNIFIED, Half, half_of

if TYPE_CHECKING:
    from island_operator.core.model import Object

SNAPSHOT = (
    "radix-islands.dev/spec"  # annotation: the parts as JSON, on the revision's Deployment and on the stable Service
)
SNAPSHOT_BYTES = 200_000  # the API server allows 256 KiB for all annotations of an object


@dataclass(frozen=True)
class Revision:
    """Resolved parts of a spec: `model`, `engine`, `islands`, `partition` (both halves, or mode unified), `accelerator`
    and `podTemplate`.

    Both halves are part of it, so turning islands off and on again returns to the pods that are still there, and no
    edit of a half that is not in use can slip in later without a revision of its own.
    """

    parts: Object

    @cached_property
    def text(self) -> str:
        """The parts as canonical JSON."""
        return json.dumps(self.parts, sort_keys=True, separators=(",", ":"))

    @cached_property
    def hash(self) -> str:
        """Ten hex digits that name it."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:10]

    @cached_property
    def half(self) -> Half:
        """The pair that its pods get."""
        return half_of(self.parts)

    @property
    def stock_twin(self) -> Revision:
        """The same with islands off."""
        return Revision({**self.parts, "islands": {**self.parts["islands"], "enabled": False}})


def remembered(obj: Object | None, name: str | None = None) -> Revision | None:
    """The revision whose snapshot an object carries; None when there is none or it is not the one it claims to be.

    The name is the digest of the parts, so an edited snapshot is found out; without a name it has to have a half.
    """
    if obj is None or (text := (obj["metadata"].get("annotations") or {}).get(SNAPSHOT)) is None:
        return None
    revision = _read(str(text))
    return revision if revision and name in {None, revision.hash} else None


@lru_cache(maxsize=256)  # each pass reads all that an object has, which was a tenth of the operator's CPU in rollouts
def _read(text: str) -> Revision | None:
    """None: it is no snapshot of a revision."""
    try:
        revision = Revision(json.loads(text))
        whole = bool(revision.half) and bool(revision.hash)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return revision if whole else None


def parts_of(spec: Object) -> Object:
    """The resolved parts of a spec as the API server has defaulted it.

    ValueError (one sentence) when the halves are to be derived and cannot be. What is not said is not hashed: a new
    optional field that comes with an operator upgrade must not rename every revision and roll every fleet.
    """
    parts = {name: _said(spec[name]) for name in ("model", "engine", "islands", "accelerator")}
    partition = spec.get("partition") or {}
    if partition.get("mode") == UNIFIED:
        parts["partition"] = {"mode": UNIFIED}
    elif partition.get("islands") and partition.get("stock"):
        parts["partition"] = {name: _said(partition[name]) for name in ("islands", "stock")}
    else:
        parts["partition"] = _derived(spec["geometry"], spec["engine"])
    if spec.get("podTemplate"):
        parts["podTemplate"] = spec["podTemplate"]  # verbatim: in a pod, `emptyDir: {}` says something
    return parts


def _derived(geometry: Object, engine: Object) -> Object:
    cost = sizing.Geometry(
        window=geometry["slidingWindow"],
        full_bytes=geometry.get("fullBytesPerToken") or 0,
        swa_bytes=geometry.get("swaBytesPerToken") or 0,
        draft_bytes=geometry.get("draftBytesPerToken") or 0,
    )
    ahead = drafts.of_arguments(engine.get("args") or ()).ahead(engine["pageSize"])
    serving = sizing.Serving(engine["pageSize"], engine["chunkedPrefillSize"], engine["maxRunningRequests"], ahead)
    halves = sizing.derive_halves(cost, serving, geometry.get("kvBudgetBytes") or 0)
    return {
        name: {"swaFullTokensRatio": half.ratio, "maxTotalTokens": half.max_total_tokens}
        for name, half in (("islands", halves.islands), ("stock", halves.stock))
    }


def _said(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: said for k, v in value.items() if (said := _said(v)) not in (None, {}, [])}
    return [_said(v) for v in value] if isinstance(value, list) else value
