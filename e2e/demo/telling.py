"""What every story of the demo is told with: its witnesses, its evidence, and the words it waits and patches with."""

from __future__ import annotations

import abc
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
from demo.traffic import Load, Request, Traffic

if TYPE_CHECKING:
    from collections.abc import Callable

    from demo.kube import Kube, Object
    from demo.narrator import Narrator

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "radix-islands"
SYSTEM = "radix-islands-system"


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
    serving: dict[str, set[str]] = field(default_factory=dict)  # chapter key -> uids of active ready engine pods
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


class Telling(abc.ABC):
    """One InferenceService, a client that never stops asking it, and what happens to them, in chapters.

    Each chapter leaves its evidence in `outcome`.
    """

    example: Path
    load: Load

    def __init__(self, kube: Kube, tell: Narrator, image_prefix: str = "localhost/radix-islands") -> None:
        self.kube, self.tell, self.prefix = kube, tell, image_prefix
        self.manifest: Object = yaml.safe_load(
            self.example.read_text().replace("localhost/radix-islands", image_prefix)
        )
        self.name: str = self.manifest["metadata"]["name"]
        self.engines = f"radix-islands.dev/instance={self.name},radix-islands.dev/role=engine"
        self.outcome = Outcome(began=time.time() - (time.monotonic() - tell.begun))
        partition = self.manifest["spec"]["partition"]
        self.outcome.halves = {
            (on, partition[half]["swaFullTokensRatio"], partition[half]["maxTotalTokens"])
            for half, on in (("islands", True), ("stock", False))
        }
        self.observer, self.traffic = Observer(kube, self.name), Traffic(kube, self.load)
        self._ended = threading.Event()
        self._phases = threading.Thread(target=self._follow_phases, name="phases", daemon=True)

    @property
    def url(self) -> str:
        """Where clients in the cluster ask: the Service of the object's name."""
        port = self.manifest["spec"]["engine"].get("port", 30000)
        return f"http://{self.name}.{self.kube.namespace}.svc.cluster.local:{port}/generate"

    @property
    def image(self) -> str:
        """The engine's image, which clients run in too."""
        return str(self.manifest["spec"]["engine"]["image"])

    @abc.abstractmethod
    def chapters(self) -> None:
        """Everything that happens."""

    def tell_all(self) -> Outcome:
        """Every chapter; the outcome, also when one of them raises."""
        try:
            self.chapters()
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

    # --- what chapters are made of --------------------------------------------------------------------------------

    def install(self) -> None:
        """The operator, from its chart."""
        self.tell.chapter("Install the operator")
        install = ["upgrade", "--install", "radix-islands", str(CHART.relative_to(ROOT))]
        where = ["--namespace", SYSTEM, "--create-namespace", "--wait", "--timeout", "90s"]
        image = ["--set", f"image.repository={self.prefix}/operator,image.tag=dev"]
        self.tell.command(" ".join(["helm", *install, *where, *image]))
        self.kube.helm(*install, *where, *image, folder=ROOT)
        self.tell.show(self.kube, "get", "pods", "--namespace", SYSTEM)

    def apply(self, what: str, timeout: float) -> None:
        """The example, until it is Ready."""
        self.tell.command(f"kubectl apply --server-side -f {self.example.relative_to(ROOT)}")
        self.observer.start()
        self._phases.start()
        self.kube.apply(yaml.safe_dump(self.manifest))
        self.wait("serve", what, settled, timeout)
        self.tell.show(self.kube, "get", "iisvc")

    def ask(self) -> None:
        """The client, from now on."""
        self.tell.say(f"A client now asks {self.url}{self.load.told}, and goes on to the end.")
        self.traffic.start(self.image, self.url)

    def patch(self, patch: dict[str, Any]) -> None:
        """An edit of the spec, as a person would make it."""
        text = self.kube.patch(self.name, patch)
        self.tell.command(
            f"kubectl patch iisvc {self.name} --type merge -p '{json.dumps(patch, separators=(',', ':'))}'"
        )
        self.tell.say(text.strip())

    def wait(self, key: str, what: str, done: Callable[[Object], bool], timeout: float) -> None:
        """Until the object is `done`; its status and who serves then are kept under `key`."""
        begun = time.monotonic()
        last: Object = {}

        def look() -> Object | None:
            nonlocal last
            last = self.kube.get("iisvc", self.name)
            return last if last.get("status") and done(last) else None

        def state() -> str:
            status = last.get("status") or {}
            message = condition(status, "Progressing").get("message") or condition(status, "Ready").get("message", "")
            if status.get("phase") == "Gating":
                message = self._gate_says(status) or message
            return f"{status.get('phase', 'no status yet')}: {message}".rstrip(": ")

        obj = self.tell.wait(what, look, state, timeout)
        self.outcome.took[key] = time.monotonic() - begun
        self.outcome.statuses[key] = obj["status"]
        pods = self.kube.items("pods", self.engines)
        active = (obj["status"].get("revisions") or {}).get("active")  # what gives way may not have been told yet
        ours = [p for p in pods if p["metadata"]["labels"]["radix-islands.dev/revision"] == active]
        self.outcome.serving[key] = {p["metadata"]["uid"] for p in ours if is_ready(p)}

    def _gate_says(self, status: Object) -> str:
        """The newest line of the gate's log, once there is one."""
        with contextlib.suppress(KubectlError):  # its pod may not be there yet
            line = self.kube.run("logs", f"job/{status['gate']['job']}", "--tail=1").strip()
            return "" if line.startswith("{") else line[:160]  # the report, for machines, is its last line
        return ""

    def show_pairs(self) -> None:
        """What each engine was told."""
        half = r"HALF:.metadata.labels.radix-islands\.dev/half"
        told = "TOLD:.spec.containers[0].args[1:9]"
        running = "--field-selector=status.phase=Running"  # one that has ended may still be listed
        columns = f"custom-columns=POD:.metadata.name,{half},{told}"
        self.tell.show(self.kube, "get", "pods", "-l", self.engines, running, "-o", columns)

    def _follow_phases(self) -> None:
        while not self._ended.is_set():
            obj: Object | None = None
            with contextlib.suppress(KubectlError):  # one look that failed, or Ctrl-C: the next one tells
                obj = self.kube.find("iisvc", self.name)
            phase = ((obj or {}).get("status") or {}).get("phase")
            if phase and (not self.outcome.phases or self.outcome.phases[-1][1] != phase):
                self.outcome.phases.append((time.time(), phase))
            self._ended.wait(0.5)
