"""How many replicas each revision gets next. Arithmetic over what is there: no memory, so a restart changes nothing.

n      spec.replicas
limit  most pods at any time: n + 1 with Surge (one spare GPU suffices), n with Replace and Downtime
floor  fewest Ready pods once the older revisions were whole: n with Surge, n - 1 with Replace and Downtime
cap    most pods of the new revision in this step; `limit` once it is promoted
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from island_operator.core.observe import Fleet

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Room:
    """The bounds that replicas and mode give."""

    n: int
    limit: int
    floor: int

    @classmethod
    def of(cls, n: int, mode: str) -> Room:
        """Replace needs a second replica to serve meanwhile: with one, it has to be Surge. Only Downtime, which says
        it by name, takes the last one: the one GPU is the gate's, then the winner's.
        """
        frees_one = n > 0 and (mode == "Downtime" or (mode == "Replace" and n > 1))
        return cls(n, n, n - 1) if frees_one else cls(n, n + 1, n)

    def cap(self, weight: int) -> int:
        """Most pods of the new revision in a canary step of so many per cent."""
        return max(1, round(weight * self.limit / 100))


def step(
    room: Room, cap: int, target: str, active: str | None, seen: Mapping[str, Fleet], gate: int = 0
) -> dict[str, int]:
    """Replicas per revision on the careful way to `target`; `gate` pods hold a GPU beside the fleets.

    An older revision gives up a pod only for a Ready one of the new, and the new one grows only into room that is
    really empty (terminating pods still hold their GPU).
    """
    new = seen.get(target, _none(target))
    need = min(room.n, max(room.limit - cap, room.floor - new.ready, 0))
    older = _older(target, active, seen)
    besides = sum(min(f.target, f.ready) for f in older if f.revision != active)
    wanted: dict[str, int] = {}
    for fleet in older:
        left = max(0, need - sum(wanted.values()))
        if fleet.revision == active:  # the rest of what is needed, and never fewer than it has Ready
            others = sum(f.holding for f in seen.values() if f.revision != active) + gate
            keep = _grow(fleet.target, max(min(fleet.ready, need), need - besides), room.limit - others)
        else:
            keep = min(fleet.target, fleet.ready, left)
        wanted[fleet.revision] = keep
    others = sum(max(f.holding, wanted[f.revision]) for f in older) + gate  # what they were just given is no room
    wanted[target] = _grow(new.target, min(cap, room.n), room.limit - others)
    return wanted


def rush(room: Room, target: str, active: str | None, seen: Mapping[str, Fleet], *, give: bool) -> dict[str, int]:
    """Replicas per revision on the fast way: the kill switch, and the way back to a revision that has proved itself.

    The target gets all its pods at once. What others keep is Ready and only fills the gap; `give`: one of them more
    gives up its GPU, because the target has been starved of one.
    """
    left = max(0, min(room.floor, room.n - 1 if give else room.n) - seen.get(target, _none(target)).ready)
    wanted = {target: room.n}
    for fleet in _older(target, active, seen):
        wanted[fleet.revision] = min(fleet.target, fleet.ready, left)
        left -= wanted[fleet.revision]
    return wanted


def starved(target: str, seen: Mapping[str, Fleet]) -> bool:
    """The target finds no GPU, has no pod on its way, and none of the others is about to give one up.

    A moment of it is normal: a GPU given back a second ago is not bound again yet.
    """
    new = seen.get(target, _none(target))
    leaving = any(f.ending or f.pods > f.target for f in seen.values() if f.revision != target)
    return bool(new.unscheduled) and not new.booting and not leaving


def frees_itself(room: Room, target: str, active: str | None, seen: Mapping[str, Fleet], *, fast: bool) -> bool:
    """A GPU for the target's pods that have none comes without anybody's help: a pod is about to end, one that boots
    will let another go, or the fast way takes it.
    """
    others = [f for f in seen.values() if f.revision != target]
    if any(f.ending or f.pods > f.target for f in seen.values()):
        return True
    if seen.get(target, _none(target)).booting and (fast or any(f.pods for f in others)):
        return True
    given = rush(room, target, active, seen, give=True)
    return fast and any(given[f.revision] < f.target for f in others)


def hold(n: int, target: str | None, seen: Mapping[str, Fleet]) -> dict[str, int]:
    """Replicas per revision when nothing rolls."""
    return {**dict.fromkeys(seen, 0), **({target: n} if target else {})}


def _grow(now: int, want: int, room: int) -> int:
    """Towards `want`: down at once, up only as far as there is room."""
    return want if want <= now else max(now, min(want, room))


def _older(target: str, active: str | None, seen: Mapping[str, Fleet]) -> list[Fleet]:
    """The other revisions, the active one first, then the newest."""
    others = [f for f in seen.values() if f.revision != target]
    newest = sorted(others, key=lambda f: (f.created, f.revision), reverse=True)
    return sorted(newest, key=lambda f: f.revision != active)


def _none(revision: str) -> Fleet:
    return Fleet(revision=revision, half="", created="")
