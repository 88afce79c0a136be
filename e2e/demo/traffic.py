"""The client pod that never stops asking, and what it saw."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from demo.kube import Follower, Kube

if TYPE_CHECKING:
    from collections.abc import Iterator

POD = "traffic"
WORKERS = 2
PAUSE = 1.0  # seconds between a worker's answer and its next request: the engines compute on this machine's cores


@dataclass(frozen=True)
class Request:
    """One request as its client saw it."""

    at: float  # seconds since the epoch
    seconds: float
    ok: bool
    prompt: int  # tokens
    cached: int  # tokens found in the prefix cache
    error: str = ""


def manifest(image: str, url: str) -> str:
    """The pod and its script, as JSON for `kubectl apply`."""
    script = Path(__file__).with_name("client.py").read_text()
    command = ["python3", "-c", script, url, str(WORKERS), str(PAUSE)]
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": POD},
        "spec": {
            "restartPolicy": "Never",  # a client that died would hide what it missed
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "containers": [{"name": "client", "image": image, "command": command}],
        },
    }
    return json.dumps(pod)


class Traffic:
    """Follows the client pod's log."""

    def __init__(self, kube: Kube) -> None:
        self.kube, self.requests = kube, list[Request]()
        self._lines = 0
        self._follower = Follower(kube, "logs", "--follow", POD, read=self._read)

    def start(self, image: str, url: str) -> None:
        """Start the client, wait until it runs, and follow its log."""
        self.kube.apply(manifest(image, url))
        self.kube.run("wait", f"pod/{POD}", "--for=jsonpath={.status.phase}=Running", "--timeout=60s", timeout=70)
        self._follower.start()

    def stop(self) -> None:
        """Stop following, end the client."""
        self._follower.stop()
        self.kube.run("delete", "pod", POD, "--ignore-not-found", "--wait=true", timeout=90)

    @property
    def failed(self) -> list[Request]:
        """Requests that a user would call failed."""
        return [r for r in self.requests if not r.ok]

    def _read(self, lines: Iterator[str]) -> None:
        for number, line in enumerate(lines):
            if number >= self._lines:  # a log stream that broke starts from the top again
                self._lines = number + 1
                self.requests.append(_parse(line))


def _parse(line: str) -> Request:
    raw = json.loads(line)
    return Request(raw["at"], raw["seconds"], raw["ok"], raw["prompt"], raw.get("cached", 0), raw.get("error", ""))
