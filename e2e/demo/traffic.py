"""The client pod that never stops asking, and what it saw."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from demo.kube import Follower, Kube

if TYPE_CHECKING:
    from collections.abc import Iterator

POD = "traffic"


@dataclass(frozen=True)
class Load:
    """What the client asks: sessions one after another in each worker. Lengths in tokens."""

    workers: int
    pause: float  # seconds between an answer and the next request of its worker: engines may compute on this machine
    first: tuple[int, ...]  # lengths of a session's first prompt, drawn from these
    more: tuple[int, int]  # what a turn adds to the transcript, from and to
    output: tuple[int, int]  # what a turn generates, from and to
    turns: int
    system: int = 0  # what all prompts begin with
    timeout: float = 120.0  # seconds for one request

    @property
    def told(self) -> str:
        """As words behind a URL."""
        return f" with {self.workers} sessions at a time" if self.workers > 8 else " without pause"


@dataclass(frozen=True)
class Request:
    """One request as its client saw it."""

    at: float  # seconds since the epoch
    seconds: float
    ok: bool
    prompt: int  # tokens
    cached: int  # tokens found in the prefix cache
    new: int  # tokens generated
    error: str = ""


def manifest(name: str, image: str, url: str, load: Load) -> str:
    """The pod and its script, as JSON for `kubectl apply`."""
    script = Path(__file__).with_name("client.py").read_text()
    command = ["python3", "-c", script, url, json.dumps(asdict(load))]
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",  # a client that died would hide what it missed
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "containers": [{"name": "client", "image": image, "command": command}],
        },
    }
    return json.dumps(pod)


class Traffic:
    """A client pod and what its log says."""

    def __init__(self, kube: Kube, load: Load, name: str = POD) -> None:
        self.kube, self.load, self.name, self.requests = kube, load, name, list[Request]()
        self._lines = 0
        self._follower = Follower(kube, "logs", "--follow", name, read=self._read)

    def start(self, image: str, url: str) -> None:
        """Start the client, wait until it runs, and follow its log."""
        self.kube.apply(manifest(self.name, image, url, self.load))
        self.kube.run("wait", f"pod/{self.name}", "--for=jsonpath={.status.phase}=Running", "--timeout=60s", timeout=70)
        self._follower.start()

    def stop(self) -> None:
        """Stop following, end the client."""
        self._follower.stop()
        self.kube.run("delete", "pod", self.name, "--ignore-not-found", "--wait=true", timeout=90)

    @property
    def failed(self) -> list[Request]:
        """Requests that a user would call failed."""
        return [r for r in self.requests if not r.ok]

    def _read(self, lines: Iterator[str]) -> None:
        for number, line in enumerate(lines):
            if not line.endswith("\n"):
                return  # the stream broke in the middle of it
            if number >= self._lines:  # a log stream that broke starts from the top again
                self._lines = number + 1
                self.requests.append(_parse(line))


def _parse(line: str) -> Request:
    raw = json.loads(line)
    return Request(
        raw["at"], raw["seconds"], raw["ok"], raw["prompt"], raw.get("cached", 0), raw["new"], raw.get("error", "")
    )
