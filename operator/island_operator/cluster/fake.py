"""A cluster in memory, for unit tests: resourceVersions, uids, server-side apply of one manager, and faults on order.

It has no defaults, validation, controllers or garbage collection: the integration tests have a real API server.
"""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from island_operator.cluster.kinds import CHILDREN, INSTANCE, KINDS, PARENT
from island_operator.cluster.merge import difference, merged
from island_operator.cluster.protocol import ApiError, Listing

if TYPE_CHECKING:
    from collections.abc import Callable

    from island_operator.core.model import Object

Slot = tuple[str, str, str]  # kind, namespace, name


class FakeCluster:
    """`calls` records (verb as RBAC names it, kind or kind/subresource, name); `fault(verb, kind)` may raise."""

    def __init__(self) -> None:
        self.objects: dict[Slot, Object] = {}
        self.calls: list[tuple[str, str, str]] = []
        self.logs: dict[str, str] = {}
        self.fault: Callable[[str, str], None] = lambda verb, kind: None
        self._applied: dict[Slot, Object] = {}
        self._clock = 100

    @property
    def writes(self) -> list[tuple[str, str, str]]:
        """The calls that were not reads."""
        return [call for call in self.calls if call[0] not in {"get", "list"}]

    def put(self, obj: Object) -> Object:
        """Somebody else writes an object: a user, or a controller. Returns what is stored."""
        slot = _slot(obj)
        before = self.objects.get(slot)
        self._clock += 1
        kept = {name: before["metadata"][name] for name in ("uid", "generation")} if before else {}
        fresh = {"uid": f"uid-{self._clock}", "generation": 1, **kept}
        meta = {**fresh, **obj["metadata"], "resourceVersion": str(self._clock)}
        if before and before.get("spec") != obj.get("spec"):
            meta["generation"] = before["metadata"]["generation"] + 1
        self.objects[slot] = {"apiVersion": KINDS[obj["kind"]].api_version, **copy.deepcopy(obj), "metadata": meta}
        return copy.deepcopy(self.objects[slot])

    def remove(self, kind: str, namespace: str, name: str) -> Object:
        """Somebody else deletes an object. Returns what it was."""
        self._clock += 1
        self._applied.pop((kind, namespace, name), None)
        return self.objects.pop((kind, namespace, name))

    def now(self) -> datetime:
        """See Cluster."""
        return datetime.now(UTC)

    async def list(self, kind: str, namespace: str | None = None) -> Listing:
        """See Cluster."""
        self._call("list", kind, "")
        found = (
            copy.deepcopy(obj)
            for slot, obj in self.objects.items()
            if slot[0] == kind
            and namespace in {None, slot[1]}
            and (kind not in CHILDREN or INSTANCE in (obj["metadata"].get("labels") or {}))
        )
        return Listing(tuple(found), self._clock)

    async def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """See Cluster."""
        self._call("get", kind, name)
        return copy.deepcopy(self.objects.get((kind, namespace, name)))

    async def apply(self, wanted: Object) -> Object:
        """See Cluster. RBAC asks for patch, and for create where the object is new."""
        slot = _slot(wanted)
        if slot not in self.objects:
            self._call("create", wanted["kind"], slot[2])
        self._call("patch", wanted["kind"], slot[2])
        before, last = self.objects.get(slot, {}), self._applied.get(slot, {})
        self._applied[slot] = copy.deepcopy(wanted)
        without = merged(before, difference(last, wanted))  # what we no longer say goes; what others said stays
        return self._store(slot, merged(without, wanted))

    async def patch_status(self, parent: Object, status: Object) -> Object:
        """See Cluster."""
        meta = parent["metadata"]
        self._call("patch", f"{PARENT}/status", meta["name"])
        held = self._held((PARENT, meta["namespace"], meta["name"]))
        if held["metadata"]["resourceVersion"] != meta["resourceVersion"]:
            raise ApiError(409, "the object has been modified")
        return self._store(_slot(held), {**held, "status": copy.deepcopy(status)})

    async def patch(self, kind: str, namespace: str, name: str, body: Object) -> Object:
        """See Cluster."""
        self._call("patch", kind, name)
        slot = (kind, namespace, name)
        held = self._held(slot)
        if body.get("metadata", {}).get("resourceVersion") not in {None, held["metadata"]["resourceVersion"]}:
            raise ApiError(409, "the object has been modified")
        return self._store(slot, merged(held, body))

    async def create(self, body: Object) -> Object:
        """See Cluster."""
        self._call("create", body["kind"], body["metadata"]["name"])
        if _slot(body) in self.objects:
            raise ApiError(409, "already exists")
        return self.put(body)

    async def log(self, namespace: str, pod: str, container: str) -> str:
        """See Cluster. `logs` holds what each pod said."""
        self._call("get", "Pod/log", pod)
        if pod not in self.logs:
            raise ApiError(404, f"pods {pod} not found")
        return self.logs[pod]

    async def replace(self, body: Object) -> Object:
        """See Cluster."""
        self._call("update", body["kind"], body["metadata"]["name"])
        if self._held(_slot(body))["metadata"]["resourceVersion"] != body["metadata"].get("resourceVersion"):
            raise ApiError(409, "the object has been modified")
        return self.put(body)

    async def delete(self, child: Object) -> None:
        """See Cluster."""
        self._call("delete", child["kind"], child["metadata"]["name"])
        held = self.objects.get(_slot(child))
        if held is not None and held["metadata"]["uid"] == child["metadata"]["uid"]:
            self.remove(*_slot(child))

    def _call(self, verb: str, kind: str, name: str) -> None:
        self.fault(verb, kind)
        self.calls.append((verb, kind, name))

    def _held(self, slot: Slot) -> Object:
        if slot not in self.objects:
            raise ApiError(404, f"{slot[0]} {slot[2]} not found")
        return self.objects[slot]

    def _store(self, slot: Slot, new: Object) -> Object:
        """A write that changes nothing leaves the resourceVersion alone, as the API server does."""
        before = self.objects.get(slot)
        return copy.deepcopy(before) if before is not None and before == new else self.put(new)


def _slot(obj: Object) -> Slot:
    meta = obj["metadata"]
    return obj["kind"], meta["namespace"], meta["name"]
