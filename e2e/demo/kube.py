"""kubectl as the demo and the scenarios use it: what a person would type, with JSON where code reads the answer."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

Object = dict[str, Any]


class KubectlError(RuntimeError):
    """kubectl exited non-zero; the text is what it said on stderr."""


@dataclass(frozen=True)
class Kube:
    """One cluster and namespace. `binaries` holds `kubeall` (kubectl is one of its names) and `helm`."""

    kubeconfig: Path
    binaries: Path
    namespace: str = "default"

    def argv(self, *args: str) -> list[str]:
        """The argument list that runs `kubectl args...` here."""
        return [str(self.binaries / "kubeall"), "kubectl", "--namespace", self.namespace, *args]

    @property
    def env(self) -> dict[str, str]:
        """The environment for kubectl and helm."""
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig)}

    def run(self, *args: str, stdin: str | None = None, timeout: float = 60) -> str:
        """Standard output of `kubectl args...`; KubectlError with its words otherwise."""
        done = subprocess.run(
            self.argv(*args), env=self.env, input=stdin, text=True, capture_output=True, timeout=timeout, check=False
        )
        if done.returncode:
            raise KubectlError(f"kubectl {' '.join(args)}: {done.stderr.strip()}")
        return done.stdout

    def get(self, *args: str) -> Object:
        """`kubectl get args... -o json`."""
        answer: Object = json.loads(self.run("get", *args, "-o", "json"))
        return answer

    def find(self, kind: str, name: str) -> Object | None:
        """The object, or None where there is none."""
        text = self.run("get", kind, name, "--ignore-not-found", "-o", "json")
        return json.loads(text) if text.strip() else None

    def items(self, kind: str, selector: str = "") -> list[Object]:
        """All objects of a kind in the namespace, by label selector."""
        found: list[Object] = self.get(kind, "-l", selector)["items"]
        return found

    def apply(self, manifest: str) -> str:
        """`kubectl apply --server-side` of YAML or JSON text."""
        return self.run("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifest)

    def patch(self, name: str, patch: Object) -> str:
        """`kubectl patch iisvc NAME --type merge -p ...`, the words of the README."""
        return self.run("patch", "iisvc", name, "--type", "merge", "-p", json.dumps(patch))

    def helm(self, *args: str, folder: Path | None = None, timeout: float = 180) -> str:
        """Standard output of `helm args...`, run in `folder`."""
        done = subprocess.run(
            [str(self.binaries / "helm"), *args],
            cwd=folder,
            env=self.env,
            text=True,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode:
            raise KubectlError(f"helm {' '.join(args)}: {done.stderr.strip()}")
        return done.stdout

    def stream(self, *args: str) -> subprocess.Popen[str]:
        """A running `kubectl args...` whose standard output is read line by line."""
        return subprocess.Popen(
            self.argv(*args), env=self.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )


class Follower:
    """Reads one endless `kubectl args...` in a thread and takes it up again when it ends: streams break now and then.

    `read` gets the lines of one stream, from its first; it is called once per stream.
    """

    def __init__(self, kube: Kube, *args: str, read: Callable[[Iterator[str]], None]) -> None:
        self._kube, self._args, self._read = kube, args, read
        self._stream: subprocess.Popen[str] | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"kubectl {' '.join(args[:2])}", daemon=True)

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def stop(self) -> None:
        """End the stream and wait for the thread; harmless when it was never started."""
        self._stopping.set()
        if self._stream:
            self._stream.terminate()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    def _follow(self) -> None:
        while not self._stopping.is_set():
            with self._kube.stream(*self._args) as self._stream:
                if self._stopping.is_set():  # asked to stop while it started
                    self._stream.terminate()
                assert self._stream.stdout is not None
                self._read(iter(self._stream.stdout))
            self._stopping.wait(0.5)


def documents(text: Iterator[str]) -> Iterator[Object]:
    """Objects, or events with one, of a `kubectl get --watch -o json` stream, as they become whole. What has no name
    is none: the Status with which a watch ends of a kind that has just been installed, an empty List.
    """
    decoder, pending = json.JSONDecoder(), ""
    for line in text:
        pending += line
        while pending := pending.lstrip():
            try:
                document, end = decoder.raw_decode(pending)
            except ValueError:
                break  # not whole yet
            pending = pending[end:]
            if "name" in ((document.get("object") or document).get("metadata") or {}):
                yield document
