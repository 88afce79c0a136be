"""The story that the demo tells and the scenarios check: from `kubectl apply` to a coupled rollback."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from demo.kube import KubectlError
from demo.observer import Observer, Pair, Seen, is_ready
from demo.traffic import Request, Traffic

if TYPE_CHECKING:
    from collections.abc import Callable

    from demo.kube import Kube, Object
    from demo.narrator import Narrator

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "tiny-gemma.yaml"
CHART = ROOT / "charts" / "radix-islands"
SYSTEM = "radix-islands-system"
PLANT = [{"name": "ISLAND_MUTATE", "value": "frontier"}, {"name": "ISLAND_ALLOW_MUTATION", "value": "1"}]


@dataclass
class Outcome:
    """What happened. Times are seconds since the epoch, chapters in seconds since `began`."""

    began: float
    ended: float = 0.0
    chapters: list[tuple[str, float]] = field(default_factory=list)
    phases: list[tuple[float, str]] = field(default_factory=list)
    pods: list[Seen] = field(default_factory=list)
    mixed: list[Seen] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    statuses: dict[str, Object] = field(default_factory=dict)  # chapter key -> status at its end
    spec_before_rollback: Object = field(default_factory=dict)
    serving: dict[str, set[str]] = field(default_factory=dict)  # chapter key -> uids of ready engine pods
    took: dict[str, float] = field(default_factory=dict)  # chapter key -> seconds
    halves: set[Pair] = field(default_factory=set)

    @property
    def failed(self) -> list[Request]:
        """Requests that a user would call failed."""
        return [r for r in self.requests if not r.ok]


def condition(status: Object, kind: str) -> Object:
    """A condition of a status, {} where it is not there."""
    found: Object = next((c for c in status.get("conditions", ()) if c["type"] == kind), {})
    return found


def settled(obj: Object, kind: str = "Ready", value: str = "True") -> bool:
    """The condition holds, and for what the spec says now."""
    now = condition(obj.get("status", {}), kind)
    return now.get("status") == value and now.get("observedGeneration") == obj["metadata"]["generation"]


class Story:
    """The steps, in order. Each leaves its evidence in `outcome`."""

    def __init__(self, kube: Kube, tell: Narrator, image_prefix: str = "localhost/radix-islands") -> None:
        self.kube, self.tell, self.prefix = kube, tell, image_prefix
        self.example: Object = yaml.safe_load(EXAMPLE.read_text().replace("localhost/radix-islands", image_prefix))
        self.name: str = self.example["metadata"]["name"]
        self._engines = f"radix-islands.dev/instance={self.name},radix-islands.dev/role=engine"
        self.outcome = Outcome(began=time.time() - (time.monotonic() - tell.begun))
        partition = self.example["spec"]["partition"]
        self.outcome.halves = {
            (on, partition[half]["swaFullTokensRatio"], partition[half]["maxTotalTokens"])
            for half, on in (("islands", True), ("stock", False))
        }
        self.observer, self.traffic = Observer(kube, self.name), Traffic(kube)
        self._ended = threading.Event()
        self._phases = threading.Thread(target=self._follow_phases, name="phases", daemon=True)

    def tell_all(self) -> Outcome:
        """Every chapter; the outcome, also when one of them raises."""
        try:
            self.install()
            self.serve()
            self.switch_on()
            self.plant()
            self.take_back()
            self.kill_switch()
        finally:
            self.close()
        return self.outcome

    def close(self) -> None:
        """Stop the witnesses and gather what they saw. Idempotent."""
        if self._ended.is_set():
            return
        self._ended.set()
        o = self.outcome
        o.ended, o.chapters = time.time(), list(self.tell.chapters)
        self.observer.stop()
        self.traffic.stop()
        o.pods, o.mixed = list(self.observer.pods.values()), self.observer.mixed(o.halves)
        o.requests = sorted(self.traffic.requests, key=lambda r: r.at)

    # --- chapters -------------------------------------------------------------------------------------------------

    def install(self) -> None:
        """The operator, from its chart."""
        self.tell.chapter("Install the operator")
        install = ["upgrade", "--install", "radix-islands", str(CHART.relative_to(ROOT))]
        where = ["--namespace", SYSTEM, "--create-namespace", "--wait", "--timeout", "90s"]
        image = ["--set", f"image.repository={self.prefix}/operator,image.tag=dev"]
        self.tell.command(" ".join(["helm", *install, *where, *image]))
        self.kube.helm(*install, *where, *image, folder=ROOT)
        self.tell.show(self.kube, "get", "pods", "--namespace", SYSTEM)

    def serve(self) -> None:
        """Two pods on the stock half, then a client that never stops."""
        self.tell.chapter("Serve on the stock half")
        self.tell.say(
            "Two engines of a tiny Gemma 4 with islands off: SGLang's stock cache and the pool ratio that it needs."
        )
        self.tell.command("kubectl apply --server-side -f examples/tiny-gemma.yaml")
        self.observer.start()
        self._phases.start()
        self.kube.apply(yaml.safe_dump(self.example))
        self._wait("serve", "both engines are Ready", settled, 180)
        self.tell.show(self.kube, "get", "iisvc")
        engine = self.example["spec"]["engine"]
        url = f"http://{self.name}.{self.kube.namespace}.svc.cluster.local:{engine.get('port', 30000)}/generate"
        self.tell.say(f"A client now asks {url} without pause, and goes on to the end.")
        self.traffic.start(engine["image"], url)

    def switch_on(self) -> None:
        """Islands on: gate, canary, promotion; the switch and the ratio move together."""
        self.tell.chapter("Switch islands on")
        self.tell.say(
            "One field. The operator proves the change first: "
            "a Job boots the engine off, on and off again, and wants equal bytes."
        )
        self._patch({"spec": {"islands": {"enabled": True}}})
        self._wait("gating", "the gate Job runs", lambda o: o["status"].get("phase") == "Gating", 30)
        self.tell.show(self.kube, "get", "iisvc,jobs")
        self._wait(
            "switch_on", "islands are proved and promoted", lambda o: settled(o) and settled(o, "GatePassed"), 900
        )
        self.tell.show(self.kube, "get", "iisvc")
        gate = self.outcome.statuses["switch_on"]["gate"]
        self.tell.say(f"Gate: {gate['verdict']}, {gate.get('message', '')}")
        self._pairs()

    def plant(self) -> None:
        """A wrong frontier: the gate must find it, and nothing that serves may move."""
        self.tell.chapter("Plant a wrong frontier")
        self.tell.say(
            "Now a revision whose islands free two pages too many: its answers would be wrong. The gate has to see it."
        )
        self._patch({"spec": {"engine": {"env": PLANT}}})
        self._wait("plant", "the gate rejects the revision", lambda o: settled(o, "RolledBack"), 700)
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
        self._patch({"spec": {"engine": {"env": None}}})
        self._wait("take_back", "Ready again, without a restart", settled, 60)
        self.tell.show(self.kube, "get", "iisvc")

    def kill_switch(self) -> None:
        """Islands off: the stock half, ungated, at once."""
        self.tell.chapter("Throw the kill switch")
        self.tell.say(
            "The safety action is never gated and never refused: "
            "switch and ratio go back to the stock half in one rollout."
        )
        self._patch({"spec": {"islands": {"enabled": False}}})
        self._wait("kill_switch", "back on the stock half", settled, 240)
        self.tell.show(self.kube, "get", "iisvc")
        self._pairs()

    # --- helpers --------------------------------------------------------------------------------------------------

    def _patch(self, patch: dict[str, Any]) -> None:
        text = self.kube.patch(self.name, patch)
        self.tell.command(
            f"kubectl patch iisvc {self.name} --type merge -p '{json.dumps(patch, separators=(',', ':'))}'"
        )
        self.tell.say(text.strip())

    def _wait(self, key: str, what: str, done: Callable[[Object], bool], timeout: float) -> None:
        begun = time.monotonic()
        last: Object = {}

        def look() -> Object | None:
            nonlocal last
            last = self.kube.get("iisvc", self.name)
            return last if last.get("status") and done(last) else None

        def state() -> str:
            status = last.get("status") or {}
            message = condition(status, "Progressing").get("message") or condition(status, "Ready").get("message", "")
            return f"{status.get('phase', 'no status yet')}: {message}".rstrip(": ")

        obj = self.tell.wait(what, look, state, timeout)
        self.outcome.took[key] = time.monotonic() - begun
        self.outcome.statuses[key] = obj["status"]
        pods = self.kube.items("pods", self._engines)
        self.outcome.serving[key] = {p["metadata"]["uid"] for p in pods if is_ready(p)}

    def _pairs(self) -> None:
        half = r"HALF:.metadata.labels.radix-islands\.dev/half"
        told = "TOLD:.spec.containers[0].args[1:9]"
        running = "--field-selector=status.phase=Running"  # one that has ended may still be listed
        columns = f"custom-columns=POD:.metadata.name,{half},{told}"
        self.tell.show(self.kube, "get", "pods", "-l", self._engines, running, "-o", columns)

    def _follow_phases(self) -> None:
        while not self._ended.is_set():
            obj: Object | None = None
            with contextlib.suppress(KubectlError):  # one look that failed, or Ctrl-C: the next one tells
                obj = self.kube.find("iisvc", self.name)
            phase = ((obj or {}).get("status") or {}).get("phase")
            if phase and (not self.outcome.phases or self.outcome.phases[-1][1] != phase):
                self.outcome.phases.append((time.time(), phase))
            self._ended.wait(0.5)
