"""The client pod that never stops asking, and what it saw."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess

    from demo.kube import Kube

POD = "traffic"


@dataclass(frozen=True)
class Request:
    """One request as its client saw it."""

    at: float  # seconds since the epoch
    seconds: float
    ok: bool
    prompt: int  # tokens
    cached: int  # tokens found in the prefix cache
    error: str = ""


def manifest(image: str, url: str, workers: int) -> str:
    """The pod and its script, as JSON for `kubectl apply`."""
    script = Path(__file__).with_name("client.py").read_text()
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": POD},
        "spec": {
            "restartPolicy": "Never",  # a client that died would hide what it missed
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "containers": [
                {"name": "client", "image": image, "command": ["python3", "-c", script, url, str(workers)]},
            ],
        },
    }
    return json.dumps(pod)


class Traffic:
    """Follows the client pod's log."""

    def __init__(self, kube: Kube) -> None:
        self.kube, self.requests = kube, list[Request]()
        self._stream: subprocess.Popen[str] | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="traffic", daemon=True)

    def start(self, image: str, url: str, workers: int = 2) -> None:
        """Start the client, wait until it runs, and follow its log."""
        self.kube.apply(manifest(image, url, workers))
        self.kube.run("wait", f"pod/{POD}", "--for=jsonpath={.status.phase}=Running", "--timeout=60s", timeout=70)
        self._thread.start()

    def stop(self) -> None:
        """Stop following, end the client."""
        self._stopping.set()
        if self._stream:
            self._stream.terminate()
        if self._thread.is_alive():
            self._thread.join(timeout=10)
        self.kube.run("delete", "pod", POD, "--ignore-not-found", "--wait=true", timeout=90)

    @property
    def failed(self) -> list[Request]:
        """Requests that a user would call failed."""
        return [r for r in self.requests if not r.ok]

    def _follow(self) -> None:
        lines = 0
        while not self._stopping.is_set():
            self._stream = self.kube.stream("logs", "--follow", POD)
            assert self._stream.stdout is not None
            for number, line in enumerate(self._stream.stdout):
                if number >= lines:  # a log stream that broke starts from the top again
                    lines = number + 1
                    self.requests.append(_parse(line))
            self._stream.wait()
            self._stopping.wait(0.5)


def _parse(line: str) -> Request:
    raw = json.loads(line)
    return Request(raw["at"], raw["seconds"], raw["ok"], raw["prompt"], raw.get("cached", 0), raw.get("error", ""))
