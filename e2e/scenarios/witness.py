"""Watches a whole run of scenarios: no pod that the operator made, in any namespace, may mix two halves."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from demo.kube import Follower, documents
from demo.observer import Observer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from demo.kube import Kube, Object
    from demo.observer import Pair, Seen


def halves(obj: Object) -> set[Pair]:
    """The pairs that a spec offers. Ratios are compared as the pod is told them, as text."""
    partition = obj["spec"].get("partition") or {}
    offered = ((on, partition.get(half)) for half, on in (("islands", True), ("stock", False)))
    return {(on, str(side["swaFullTokensRatio"]), int(side["maxTotalTokens"])) for on, side in offered if side}


class Witness:
    """Every pod and every half that there ever was, until `stop`."""

    def __init__(self, kube: Kube) -> None:
        self.offered: dict[str, set[Pair]] = {}  # namespace/name of the InferenceService -> its halves, of all times
        self._pods = Observer(kube)
        watch = ("--all-namespaces", "--watch", "-o", "json")
        self._specs = Follower(kube, "get", "iisvc", *watch, read=self._read)

    def start(self) -> None:
        """Begin to watch."""
        self._specs.start()
        self._pods.start()

    def stop(self) -> None:
        """Stop both watches."""
        self._pods.stop()
        self._specs.stop()

    @property
    def judged(self) -> list[Seen]:
        """Engine pods of the operator's whose halves are known."""
        return [p for p in self._pods.pods.values() if p.owner and p.pair is not None]

    @property
    def mixed(self) -> list[Seen]:
        """Those with a switch and a partition that no half of their InferenceService ever had together."""
        return [p for p in self.judged if p.pair not in self.offered.get(p.owner, set())]

    @property
    def torn(self) -> dict[str, set[Pair]]:
        """Revisions whose pods were not all told the same."""
        key = lambda p: (p.owner, p.revision)  # noqa: E731
        told = {
            "/".join(who): {p.pair for p in pods if p.pair}
            for who, pods in itertools.groupby(sorted(self.judged, key=key), key)
        }
        return {who: pairs for who, pairs in told.items() if len(pairs) > 1}

    def _read(self, lines: Iterator[str]) -> None:
        for obj in documents(lines):
            name = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
            self.offered.setdefault(name, set()).update(halves(obj))
