"""`cluster up`: from whatever is there to a Ready node with DNS, GPUs and images."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from . import apt, binaries, engine, guard, host, images, node, owner, processes, render, store
from .api import Api, ApiError
from .cleanup import tear_down
from .errors import ClusterError
from .owner import Claim, Owner
from .paths import CHECKOUT, RUN, cache, need_space
from .progress import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .images import Image

KUBECONFIG = RUN / "kubeconfig"


@dataclass(frozen=True)
class Wanted:
    """What `up` was asked for."""

    gpus: int = 2
    port: int = render.DEFAULT_PORT
    bare: bool = False  # no engine venv, no model, no images of ours
    tied_to: int | None = None  # take everything down when this process dies


def up(wanted: Wanted = Wanted()) -> Path:
    """Bring the cluster up, or one that runs up to date; returns the kubeconfig. ClusterError says what is amiss."""
    begin = time.monotonic()
    pidfd = guard.open_process(wanted.tied_to) if wanted.tied_to is not None else None
    try:
        host.check_root()
        _refuse_other_checkout()
        apt.ensure(apt.NODE if wanted.bare else apt.NODE | apt.IMAGES)
        programs = binaries.ensure()
        wanted_images = _build_images(programs, bare=wanted.bare)
        binds = {} if wanted.bare else {"venv": engine.venv(), "models": engine.models()}
        with owner.machine_lock():
            _refuse_other_checkout()
            if pidfd is not None:
                guard.stop()
                guard.start(pidfd)
            _start_or_refresh(wanted, programs, wanted_images, binds)
    finally:
        if pidfd is not None:
            os.close(pidfd)
    say(f"cluster up in {time.monotonic() - begin:.1f} s: Kubernetes {binaries.KUBERNETES}, {wanted.gpus} GPUs")
    return KUBECONFIG


def claim() -> tuple[Claim, Owner | None]:
    """How this checkout stands to what runs on the machine."""
    record = owner.load()
    theirs = bool(record and (Path(record.checkout) / owner.TOOL).exists())
    alive = processes.node_init() is not None
    return owner.decide(record, checkout=CHECKOUT, alive=alive, their_tool_exists=theirs), record


def refusal(record: Owner) -> ClusterError:
    """What the second checkout is told."""
    return ClusterError(
        f"the checkout {record.checkout} has a cluster up on this machine (since {record.since}), and there is room "
        f"for one; take it down with `{record.take_down}`"
    )


def _refuse_other_checkout() -> None:
    standing, record = claim()
    if standing is Claim.THEIRS and record:
        raise refusal(record)


def _build_images(programs: Path, *, bare: bool) -> dict[str, Image]:
    wanted = images.internal(programs)
    if not bare:
        wanted |= {image.repository: image for image in images.ours()}
    images.ensure(list(wanted.values()))
    return wanted


@contextlib.contextmanager
def _cleaning_up() -> Iterator[None]:
    """A node that did not come up is of no use to anyone; the error carries the words that matter."""
    try:
        yield
    except BaseException:
        say("that failed: taking the node down again")
        tear_down(owner.load())
        raise


def _start_or_refresh(wanted: Wanted, programs: Path, wanted_images: dict[str, Image], binds: dict[str, Path]) -> None:
    standing, record = claim()
    if standing is Claim.OURS and record and _suits(record, wanted.port, programs, binds) and _serves(record):
        store.bring(list(wanted_images.values()))
        _set_gpus(Api(KUBECONFIG, wanted.port), wanted.gpus)
        return
    if standing is not Claim.FREE:
        say(
            "starting anew: the node that is up is not well, or of other contents"
            if standing is Claim.OURS
            else "cleaning up what an earlier node left"
        )
        tear_down(record, keep_guard=True)
    host.check(wanted.port)
    need_space(cache(), 2, "the node")
    with _cleaning_up():
        _start(wanted, programs, wanted_images, binds)
        _set_gpus(Api(KUBECONFIG, wanted.port), wanted.gpus)


def _suits(record: Owner, port: int, programs: Path, binds: dict[str, Path]) -> bool:
    """Does the node that runs have what is wanted, apart from images and GPUs, which change in a running one?"""
    bound = all(record.binds.get(name) == str(path) for name, path in binds.items())
    return bound and record.port == port and record.binaries == str(programs)


def _serves(record: Owner) -> bool:
    with contextlib.suppress(OSError, ApiError):
        api = Api(KUBECONFIG, record.port)
        return bool(api.call("GET", "/readyz") == "ok") and _node_ready(api)
    return False


def _start(wanted: Wanted, programs: Path, wanted_images: dict[str, Image], binds: dict[str, Path]) -> None:
    state = cache() / "node"
    mounted = host.mounted_hierarchies()
    owner.save(
        Owner(
            checkout=str(CHECKOUT),
            state=str(state),
            boot=owner.boot_id(),
            since=time.strftime("%Y-%m-%d %H:%M:%S"),
            port=wanted.port,
            binaries=str(programs),
            binds={name: str(path) for name, path in binds.items()},
            sysctls=host.read_sysctls(),
            cgroups=host.planned_cgroups(mounted),
            subtree=host.subtree_controls(mounted),
        )
    )
    host.remove_tree(state / "var")
    host.raise_sysctls()
    host.make_cgroups(mounted)
    for name, content in {"cni/10-bridge.conflist": render.cni(), "kubelet.json": render.kubelet()}.items():
        node.write_config(name, content)
    node.write_config("kube-proxy.json", render.kube_proxy())
    say("starting the node, containerd and the control plane")
    init = node.start(state, programs, binds)
    images_ready = _in_background(lambda: _containerd(init, wanted_images))
    node.certificates(programs / "kubeall", binaries.KUBERNETES)
    daemons = render.daemons()
    for name in ("etcd", "kube-apiserver"):
        node.spawn(init, name, daemons.pop(name))
    node.forward_api(init, wanted.port)
    admin = (render.CONFIG / "admin.conf").read_text()
    KUBECONFIG.touch(mode=0o600)
    KUBECONFIG.write_text(render.user_kubeconfig(admin, wanted.port))
    root = Api(render.CONFIG / "super-admin.conf", wanted.port)
    root.until("the API server", lambda: root.call("GET", "/readyz") == "ok", 60, lambda: _log("kube-apiserver"))
    admins = {"kind": "Group", "name": "kubeadm:cluster-admins"}
    root.apply(render.cluster_role_binding("kubeadm:cluster-admins", "cluster-admin", admins))
    for name in ("kube-controller-manager", "kube-scheduler", "kube-proxy"):
        node.spawn(init, name, daemons.pop(name))
    for obj in render.coredns(wanted_images["coredns"].ref):
        root.apply(obj)
    images_ready()
    node.spawn(init, "kubelet", daemons.pop("kubelet"))
    _wait(root)


def _containerd(init: int, wanted_images: dict[str, Image]) -> None:
    pause = wanted_images["pause"].ref
    # First as a mere store: CRI would take the containers of a killed node for its own.
    store.start(init, pause, cri=False)
    store.forget_containers()
    store.bring(list(wanted_images.values()))
    store.stop_store()
    store.start(init, pause, cri=True)


def _in_background(work: Callable[[], None]) -> Callable[[], None]:
    """Start `work` in a thread; the returned function waits for it and raises what it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 (handed to the thread that waits)
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def wait() -> None:
        thread.join()
        if raised:
            raise raised[0]

    return wait


def _wait(api: Api) -> None:
    api.until("the node", lambda: _node_ready(api), 60, lambda: _log("kubelet"))
    say("node Ready; waiting for DNS")
    for space in ("default", "kube-system"):  # without it no pod is admitted
        path = f"/api/v1/namespaces/{space}/serviceaccounts/default"
        api.until(f"the service account of {space}", partial(_exists, api, path), 60, lambda: "")
    path = "/apis/apps/v1/namespaces/kube-system/deployments/coredns"
    api.until("CoreDNS", lambda: api.call("GET", path)["status"].get("readyReplicas") == 1, 60, lambda: _log("kubelet"))


def _exists(api: Api, path: str) -> bool:
    return bool(api.call("GET", path))


def _node_ready(api: Api) -> bool:
    conditions = api.call("GET", f"/api/v1/nodes/{render.NODE_NAME}")["status"]["conditions"]
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _set_gpus(api: Api, count: int) -> None:
    """A kubelet forgets resources that no device plugin reported when it registers anew; so ask, then set."""
    path = f"/api/v1/nodes/{render.NODE_NAME}"

    def held() -> bool:
        if api.call("GET", path)["status"]["allocatable"].get("nvidia.com/gpu", "0") == str(count):
            return True
        api.call("PATCH", f"{path}/status", render.gpu_patch(count), "application/merge-patch+json")
        return False

    api.until("nvidia.com/gpu on the node", held, 60, lambda: _log("kubelet"))


def _log(name: str) -> str:
    return node.tail(node.LOG / f"{name}.log")
