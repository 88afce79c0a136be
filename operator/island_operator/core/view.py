"""What one pass knows, and the events that it found worth telling."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from island_operator.core.coupling import planned
from island_operator.core.model import Event
from island_operator.core.revision import remembered
from island_operator.core.text import cut

if TYPE_CHECKING:
    from collections.abc import Mapping

    from island_operator.core.checks import Reading
    from island_operator.core.intent import Intent
    from island_operator.core.model import Object, Snapshot
    from island_operator.core.observe import Fleet
    from island_operator.core.revision import Revision


@dataclass
class Pass:
    """One pass over one InferenceService."""

    intent: Intent
    snapshot: Snapshot
    seen: Mapping[str, Fleet]
    now: str
    events: list[Event] = field(default_factory=list)

    def tell(self, reason: str, note: str, *, warn: bool = False) -> None:
        """Note an event."""
        self.events.append(Event("Warning" if warn else "Normal", reason, cut(note, 1000)))

    def fleet(self, revision: str | None) -> Fleet | None:
        """The pods of a revision."""
        return self.seen.get(revision) if revision else None

    def revision(self, name: str | None) -> Revision | None:
        """A revision's parts: from the spec, from its Deployment, or from the stable Service; or as the stock half of
        one of those, which is a revision that a rollback may be the first to need.
        """
        asked = self.intent.revision
        if name is None or (asked and asked.hash == name):
            return asked if name else None
        deployment = self.snapshot.child("Deployment", f"{self.intent.name}-{name}")
        return remembered(deployment, name) or remembered(self.stable_service, name) or self._twin(name)

    def _twin(self, name: str) -> Revision | None:
        keepers = (*(f.deployment for f in self.seen.values()), self.stable_service)
        twins = (kept.stock_twin for keeper in keepers if (kept := remembered(keeper)))
        return next((twin for twin in twins if twin.hash == name), None)

    @property
    def stable_service(self) -> Object | None:
        """The Service that selects the active revision, and keeps its parts."""
        return self.snapshot.child("Service", f"{self.intent.name}-stable")

    def readings(self, revision: str | None) -> dict[str, Reading]:
        """What is known of the Ready engines of a revision, by the pod's name."""
        fleet, known = self.fleet(revision), self.snapshot.readings
        return {name: known[uid] for name, uid, _ in (fleet.engines if fleet else ()) if uid in known}

    def planned(self, revision: Revision) -> int:
        """Requests that an engine of this revision is sized to run at once."""
        return planned(revision.parts, int(self.snapshot.parent["spec"]["geometry"]["slidingWindow"]))

    def others_idle(self, revision: str) -> bool:
        """No other revision has a pod or asks for one."""
        return all(f.idle for f in self.seen.values() if f.revision != revision)
