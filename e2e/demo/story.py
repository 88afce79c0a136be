"""The story that the demo tells and the scenarios check: from `kubectl apply` to a coupled rollback."""

from __future__ import annotations

from demo.telling import ROOT, Telling, condition, settled
from demo.traffic import Load

PLANT = [{"name": "ISLAND_MUTATE", "value": "frontier"}, {"name": "ISLAND_ALLOW_MUTATION", "value": "1"}]


class Story(Telling):
    """A tiny model that really computes: islands on, a planted fault, the kill switch."""

    example = ROOT / "examples" / "tiny-gemma.yaml"
    load = Load(workers=2, pause=1.0, first=(150, 300, 600), more=(20, 20), output=(16, 16), turns=6)

    def chapters(self) -> None:
        """See Telling."""
        self.install()
        self.serve()
        self.switch_on()
        self.plant()
        self.take_back()
        self.kill_switch()

    def serve(self) -> None:
        """Two pods on the stock half, then a client that never stops."""
        self.tell.chapter("Serve on the stock half")
        self.tell.say(
            "Two engines of a tiny Gemma 4 with islands off: SGLang's stock cache and the pool ratio that it needs."
        )
        self.apply("both engines are Ready", 180)
        self.ask()

    def switch_on(self) -> None:
        """Islands on: gate, canary, promotion; the switch and the ratio move together."""
        self.tell.chapter("Switch islands on")
        self.tell.say(
            "One field. The operator proves the change first: "
            "a Job boots the engine off, on and off again, and wants equal bytes."
        )
        self.patch({"spec": {"islands": {"enabled": True}}})
        self.wait("gating", "the gate Job runs", lambda o: o["status"].get("phase") == "Gating", 30)
        self.tell.show(self.kube, "get", "iisvc,jobs")
        self.wait(
            "switch_on", "islands are proved and promoted", lambda o: settled(o) and settled(o, "GatePassed"), 900
        )
        self.tell.show(self.kube, "get", "iisvc")
        gate = self.outcome.statuses["switch_on"]["gate"]
        self.tell.say(f"Gate: {gate['verdict']}, {gate.get('message', '')}")
        self.show_pairs()

    def plant(self) -> None:
        """A wrong frontier: the gate must find it, and nothing that serves may move."""
        self.tell.chapter("Plant a wrong frontier")
        self.tell.say(
            "Now a revision whose islands free two pages too many: its answers would be wrong. The gate has to see it."
        )
        self.patch({"spec": {"engine": {"env": PLANT}}})
        self.wait("plant", "the gate rejects the revision", lambda o: settled(o, "RolledBack"), 700)
        self.outcome.spec_before_rollback = self.kube.get("iisvc", self.name)["spec"]
        self.tell.show(self.kube, "get", "iisvc")
        status = self.outcome.statuses["plant"]
        self.tell.say(f"Rejected: {condition(status, 'RolledBack').get('message', '')}")
        self.tell.say(
            "The pods that serve were never touched, and your spec was not edited: it still asks for the bad revision."
        )

    def take_back(self) -> None:
        """The spec goes back to what serves: nothing restarts."""
        self.tell.chapter("Take the change back")
        self.patch({"spec": {"engine": {"env": None}}})
        self.wait("take_back", "Ready again, without a restart", settled, 60)
        self.tell.show(self.kube, "get", "iisvc")

    def kill_switch(self) -> None:
        """Islands off: the stock half, ungated, at once."""
        self.tell.chapter("Throw the kill switch")
        self.tell.say(
            "The safety action is never gated and never refused: "
            "switch and ratio go back to the stock half in one rollout."
        )
        self.patch({"spec": {"islands": {"enabled": False}}})
        self.wait("kill_switch", "back on the stock half", settled, 240)
        self.tell.show(self.kube, "get", "iisvc")
        self.show_pairs()
