"""The bench's cluster: a real etcd, API server, controller manager and scheduler; KWOK plays a node and its pods."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from aiohttp import web
from support.control_plane import ROOT, ControlPlane, free_ports, until

from cluster import binaries

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

STAGES = Path(__file__).with_name("kwok.yaml")
GPUS = 20_000
NAMESPACES = 20  # of a namespace Kubernetes' own controllers look at everything at each change of one thing
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "played", "annotations": {"node.alpha.kubernetes.io/ttl": "0"}},
}
ROOM = {"cpu": "40000", "memory": "40000Gi", "pods": str(GPUS), "nvidia.com/gpu": str(GPUS)}
METRICS = "sglang:num_queue_reqs 0\nsglang:num_running_reqs 1\nsglang:num_requests_total 5\n"
TICKS = os.sysconf("SC_CLK_TCK")


class Fleet(ControlPlane):
    """A ControlPlane whose pods are scheduled and run, as far as anybody can tell."""

    controller_manager_flags = (
        # a played node that misses a heartbeat on a busy machine would take all of its pods with it
        "--node-monitor-grace-period", "30m0s", "--concurrent-deployment-syncs", "10",
        "--concurrent-replicaset-syncs", "10", "--concurrent-gc-syncs", "20",
    )  # fmt: skip

    def __init__(self) -> None:
        self.kwok = binaries.ensure_kwok()
        super().__init__()

    def __enter__(self) -> Fleet:
        super().__enter__()
        try:
            self._start(
                "kube-scheduler", "--kubeconfig", self.dir / "scheduler.conf", "--leader-elect=false",
                "--secure-port", "0", "--kube-api-qps", "200", "--kube-api-burst", "400",
            )  # fmt: skip
            self._play()
            self.apply(NODE)
            for number in range(NAMESPACES):
                self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"team{number}"}})
            self.merge("node", "played", {"status": {"capacity": ROOM, "allocatable": ROOM}}, subresource="status")
            until("the node is Ready", self._node_is_ready)
        except BaseException:
            self.__exit__()
            raise
        return self

    def cpu(self) -> dict[str, float]:
        """CPU seconds of each process of the control plane so far."""
        return {name: cpu_seconds(process.pid) for name, process in self._processes.items()}

    def _play(self) -> None:
        stages = self.dir / "stages.yaml"
        stages.write_text(STAGES.read_text().replace("ENGINE", own_address()))
        flags = ["--kubeconfig", self.kubeconfig, "--config", stages, "--manage-all-nodes=true"]
        flags += ["--server-address", f"127.0.0.1:{free_ports(1)[0]}"]
        with (self.dir / "kwok.log").open("ab") as log:
            self._processes["kwok"] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", self.kwok, *map(str, flags)], stdout=log, stderr=log
            )

    def _node_is_ready(self) -> bool:
        conditions = self.get("node", "played")["status"]["conditions"]
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


@contextlib.asynccontextmanager
async def engines() -> AsyncIterator[int]:
    """Something that answers /metrics as every played engine does; yields its port."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=METRICS)

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, own_address(), 0).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def own_address() -> str:
    """This machine's address, which all played engines share: the endpoints controller takes no loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing: it only asks for the route
        return str(probe.getsockname()[0])


def resource(name: str, port: int, *, islands: bool = False) -> dict[str, Any]:
    """The example with one replica, no canary step, and engines that listen on `port`."""
    made: dict[str, Any] = yaml.safe_load((ROOT / "examples/tiny-gemma.yaml").read_text())
    made["metadata"] = {"name": name, "namespace": home(name)}
    spec = made["spec"]
    del spec["podTemplate"]
    spec.update(replicas=1, islands={"enabled": islands})
    spec["engine"].update(image="good:1", port=port)
    spec["rollout"]["steps"] = []
    return made


def home(name: str) -> str:
    """The namespace of an InferenceService of the fleet: as of teams that have some each."""
    return f"team{zlib.crc32(name.encode()) % NAMESPACES}"


def cpu_seconds(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory(pid: int) -> dict[str, float]:
    """{"VmRSS", "VmHWM"}: MiB resident now, and at most so far."""
    lines = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {words[0][:-1]: int(words[1]) / 1024 for words in lines if words[0] in {"VmRSS:", "VmHWM:"}}
