"""`cluster status`: what runs, for whom, and whether it is well."""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from . import binaries, guard, processes, render, store
from .api import Api, ApiError
from .bring_up import KUBECONFIG, claim
from .errors import ClusterError
from .owner import Claim


@dataclass(frozen=True)
class Status:
    """The machine's node, seen from this checkout. Memory in MiB, of the programs, without the pods."""

    up: bool
    ready: bool = False
    checkout: str = ""
    since: str = ""
    kubeconfig: str = ""
    kubernetes: str = ""
    containerd: str = ""
    gpus: int = 0
    guarded: bool = False
    images: list[str] = field(default_factory=list)
    pods: list[str] = field(default_factory=list)
    memory_mib: dict[str, int] = field(default_factory=dict)
    trouble: str = ""

    @property
    def as_dict(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self)


def status() -> Status:
    """Look; never raises for a cluster that is down or ill."""
    standing, record = claim()
    if standing is Claim.STALE:
        return Status(up=False, trouble="an earlier node left something; `cluster down` or `cluster up` clears it")
    if standing is Claim.FREE or record is None:
        return Status(up=False)
    known: dict[str, Any] = {
        "up": True,
        "checkout": record.checkout,
        "since": record.since,
        "guarded": bool(guard.running()),
    }
    known |= {"kubeconfig": str(KUBECONFIG), "memory_mib": memory()}
    trouble = ""
    if standing is Claim.THEIRS:
        trouble = f"it belongs to another checkout, which can end it with `{record.take_down}`"
    try:
        api = Api(KUBECONFIG, record.port)
        node = api.call("GET", f"/api/v1/nodes/{render.NODE_NAME}")["status"]
        pods = api.call("GET", "/api/v1/pods")["items"]
    except (OSError, ApiError) as error:
        return Status(**known, trouble=f"the API server does not answer: {error}")
    images: list[str] = []
    with contextlib.suppress(ClusterError):
        images = sorted(ref for ref in store.held() if not ref.startswith("sha256:"))
    return Status(
        **known,
        ready=any(c["type"] == "Ready" and c["status"] == "True" for c in node["conditions"]),
        kubernetes=node["nodeInfo"]["kubeletVersion"],
        containerd=node["nodeInfo"]["containerRuntimeVersion"].removeprefix("containerd://"),
        gpus=int(node["allocatable"].get("nvidia.com/gpu", "0")),
        images=images,
        pods=[f"{pod['metadata']['namespace']}/{pod['metadata']['name']} {pod['status']['phase']}" for pod in pods],
        trouble=trouble,
    )


def memory() -> dict[str, int]:
    """Resident memory of the node's programs by name, in MiB (pages they share are counted in each)."""
    found: dict[str, int] = {}
    for entry in Path("/proc").iterdir():
        argv = processes.arguments(int(entry.name)) if entry.name.isdigit() else []
        name = _program(argv)
        if name:
            with contextlib.suppress(OSError, IndexError):
                text = (entry / "status").read_text()
                kib = int(text.split("VmRSS:")[1].split()[0])
                found[name] = found.get(name, 0) + kib // 1024
    return dict(sorted(found.items()))


def _program(argv: list[str]) -> str:
    if len(argv) > 1 and argv[0] == render.KUBEALL:
        return argv[1]
    return "containerd" if f"{render.CONFIG}/containerd.toml" in argv else ""


def describe(found: Status) -> str:
    """The table for people."""
    if not found.up:
        return "cluster: down" + (f" ({found.trouble})" if found.trouble else "")
    rows = {
        "cluster": f"up since {found.since}, node {'Ready' if found.ready else 'NOT READY'}",
        "versions": f"Kubernetes {found.kubernetes}, containerd {found.containerd}, CoreDNS {binaries.COREDNS}",
        "GPUs": f"{found.gpus} (nvidia.com/gpu, claimed only)",
        "checkout": found.checkout,
        "guard": "a process is watched; its end takes all down" if found.guarded else "none",
        "memory": f"{sum(found.memory_mib.values())} MiB: "
        + ", ".join(f"{name} {mib}" for name, mib in found.memory_mib.items()),
        "pods": "\n".join(found.pods),
        "images": "\n".join(found.images),
        "kubectl": f"export KUBECONFIG={found.kubeconfig}",
    }
    if found.trouble:
        rows["trouble"] = found.trouble
    return "\n".join(f"{name:10}{text.replace(chr(10), chr(10) + ' ' * 10)}" for name, text in rows.items())
