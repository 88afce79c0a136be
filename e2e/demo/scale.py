"""The story at production geometry: paced engines, 96 agents, islands on live, and a pod forced out of step."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from demo.meter import PORT, Measured, Meter, measure
from demo.observer import is_ready
from demo.telling import ROOT, Telling, condition, settled
from demo.traffic import Load, Traffic

if TYPE_CHECKING:
    from demo.kube import Kube, Object
    from demo.narrator import Narrator

WARM, MEASURED = 45, 60  # seconds: until the transcripts fill the pools, and those that are judged
LABEL = "radix-islands.dev/"


class Scale(Telling):
    """One engine of Gemma 4 26B on a modelled H100, and agents that re-send their transcripts."""

    example = ROOT / "examples" / "gemma4-26b-paced.yaml"
    # As the bench `best` has them, agentic-96 (docs/benchmarks.md).
    load = Load(
        workers=96,
        pause=0.0,
        system=8_192,
        first=(2_048, 3_072, 4_096, 5_120, 6_144),
        more=(2_048, 6_144),
        output=(500, 2_000),
        turns=4,
        timeout=600.0,
    )

    def __init__(self, kube: Kube, tell: Narrator, image_prefix: str = "localhost/radix-islands") -> None:
        super().__init__(kube, tell, image_prefix)
        self.meter = Meter(kube, self.engines)
        self.more = Traffic(kube, self.load, "traffic-by-hand")
        self.spans: dict[str, tuple[float, float]] = {}  # half -> what is judged of it, seconds since the epoch
        self.by_hand = ""  # name of the pod that was forced

    def chapters(self) -> None:
        """See Telling."""
        self.install()
        self.serve()
        self.switch_on()
        self.force()

    def close(self) -> None:
        """See Telling."""
        self.meter.stop()
        self.more.stop()
        super().close()
        if self.by_hand:  # last: whoever still asks it would be cut off
            self.kube.run("delete", "pod", self.by_hand, "--ignore-not-found", "--grace-period=1", timeout=60)

    def serve(self) -> None:
        """One engine on the stock half, under 96 agents."""
        self.tell.chapter("Serve Gemma 4 26B on the stock half")
        self.tell.say(
            "A paced engine: SGLang's real server, scheduler, cache and metrics at the size of one H100; "
            "steps take modelled time, tokens are dummies."
        )
        self.apply("the engine is Ready", 180)
        self.ask()
        self.meter.start()
        self._hold("stock")

    def switch_on(self) -> None:
        """Islands on: a canary whose own metrics are judged beside those of what serves; no gate for dummies."""
        self.tell.chapter("Switch islands on")
        self.patch({"spec": {"islands": {"enabled": True}}})
        self.wait("switch_on", "islands are promoted", settled, 600)
        self.tell.show(self.kube, "get", "iisvc")
        self._hold("islands")
        before, after = self.measured("stock"), self.measured("islands")
        self.tell.say(
            f"Running: {before.running:.0f} before, {after.running:.0f} now. "
            f"Mean latency: {before.latency:.1f} s before, {after.latency:.1f} s now. "
            f"Output: {before.tok_s:,.0f} tokens/s before, {after.tok_s:,.0f} now."
        )

    def force(self) -> None:
        """A pod made by hand, the lean ratio without islands: the operator has to see it in its metrics."""
        self.tell.chapter("Force a pod out of step by hand")
        # By its address: of two pods behind a Service the one that queues keeps the queue, and which that is is chance.
        self.tell.say(
            "A copy of the engine's pod with islands off at the lean ratio, and 96 more agents that ask just it."
        )
        pod = self._copy()
        self.by_hand = pod["metadata"]["name"]
        self.tell.command(f"kubectl apply -f {self.by_hand}.json   # the manifest of its pod, with --islands off")
        self.kube.apply(json.dumps(pod))
        self.kube.run("wait", f"pod/{self.by_hand}", "--for=condition=Ready", "--timeout=180s", timeout=190)
        self.more.start(self.image, f"http://{self.kube.get('pod', self.by_hand)['status']['podIP']}:{PORT}/generate")
        self.wait("force", "the operator sees the re-bind", lambda o: settled(o, "RolledBack"), 420)
        status = self.outcome.statuses["force"]
        self.tell.say(f"Rolled back: {condition(status, 'RolledBack').get('message', '')}")
        self.more.stop()
        self.tell.command(f"kubectl delete pod {self.by_hand}   # it ends what it has begun, for minutes")
        self.kube.run("delete", "pod", self.by_hand, "--wait=false")
        self.wait("restore", "the stock half serves alone", _on_stock, 400)
        self.tell.show(self.kube, "get", "iisvc")
        self.show_pairs()

    def measured(self, half: str) -> Measured:
        """What the witnesses saw of the stretch in which this half alone served."""
        return measure(self.meter.samples, self.traffic.requests, *self.spans[half])

    def _hold(self, half: str) -> None:
        """Let the load settle, then look for a while."""
        begun = time.time()

        def state() -> str:
            told_until = begun + (time.time() - begun) // 15 * 15  # four lines a minute
            seen = [s for s in self.meter.samples if s.at <= told_until]
            if not seen:
                return ""
            s = seen[-1]
            return f"{s.running:.0f} running, {s.queued:.0f} queued, SWA pool {s.swa:.0%}, full pool {s.full:.0%}"

        def look() -> bool | None:
            return time.time() - begun > WARM + MEASURED or None

        self.tell.wait(f"{WARM + MEASURED} s of 96 agents on the {half} half", look, state, WARM + MEASURED + 30)
        self.spans[half] = begun + WARM, time.time()

    def _copy(self) -> Object:
        """The serving pod as somebody would copy it: no owner, another name, islands off."""
        ours = next(p for p in self.kube.items("pods", self.engines) if is_ready(p))
        meta, spec = ours["metadata"], ours["spec"]
        args: list[str] = spec["containers"][0]["args"]
        args[args.index("--islands") + 1] = "off"
        if "--island-decode-interval" in args:
            del args[(at := args.index("--island-decode-interval")) : at + 2]
        labels = {key: value for key, value in meta["labels"].items() if key.startswith((LABEL, "app.kubernetes.io/"))}
        spec.pop("nodeName")
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{self.name}-by-hand", "labels": labels},
            "spec": spec,
        }


def _on_stock(obj: Object) -> bool:
    status = obj["status"]
    return status["phase"] == "Stable" and status["islands"]["enabled"] is False and settled(obj, "Available")
