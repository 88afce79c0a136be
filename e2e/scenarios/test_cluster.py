"""The cluster itself: it comes up, refuses company, survives kill -9 at any moment, and leaves nothing behind.

These tests own the machine's one cluster: what is up when they begin is taken down. Two minutes; needs root.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cluster import host, owner, processes
from cluster.bring_up import KUBECONFIG
from cluster.paths import CHECKOUT, RUN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOOL = CHECKOUT / owner.TOOL
UP = ("up", "--bare")
NAMESPACES = ("pid", "net", "mnt", "uts", "ipc")


def tool(*arguments: str, script: Path = TOOL) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(script), *arguments], capture_output=True, text=True, check=False, timeout=120)


def succeed(*arguments: str) -> str:
    done = tool(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def kubectl(*arguments: str, stdin: str | None = None) -> str:
    command = [str(TOOL), "kubectl", *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def machine() -> dict[str, object]:
    """All that a node could leave behind."""
    return {
        "mounts": Path("/proc/mounts").read_text(),
        "cgroups": {str(h.path): sorted(p.name for p in h.path.iterdir()) for h in host.mounted_hierarchies()},
        "subtree": host.subtree_controls(host.mounted_hierarchies()),
        "named netns": subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout,
        "namespaces": namespaces(),
        "sysctls": host.read_sysctls(),
        "interfaces": sorted(os.listdir("/sys/class/net")),  # noqa: PTH208 (names alone)
        "directories": {
            top: sorted(p.name for p in Path(top).iterdir()) for top in ("/run", "/var/lib", "/opt", "/etc")
        },
        "node": processes.marked(processes.NODE_MARK, ""),
        "guard": processes.marked(processes.GUARD_MARK, ""),
    }


def namespaces() -> set[str]:
    """Every namespace that a process is in: a process that a node left is in one of its own."""
    found = set()
    for pid in (entry for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        for kind in NAMESPACES:
            try:
                found.add(str((pid / "ns" / kind).readlink()))
            except OSError:  # it ended meanwhile
                continue
    return found


def wait_for(what: str, test: Callable[[], bool], patience: float = 60) -> None:
    deadline = time.monotonic() + patience
    while not test():
        assert time.monotonic() < deadline, f"{what}: not within {patience:.0f} s"
        time.sleep(0.05)


@pytest.fixture
def clean() -> Iterator[dict[str, object]]:
    """The machine without a node; afterwards it must be the same again."""
    succeed("down")
    before = machine()
    yield before
    succeed("down")
    wait_for("all is as it was", lambda: machine() == before)  # the kernel takes a network namespace down by and by


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process for --tied-to."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        yield process
        process.kill()


@pytest.mark.usefixtures("clean")
def test_up_serves_pods_services_and_scarce_gpus_and_refuses_company(tmp_path: Path) -> None:
    assert succeed(*UP, "--gpus", "2").splitlines()[-1] == f"export KUBECONFIG={KUBECONFIG}"
    assert KUBECONFIG.stat().st_mode & 0o077 == 0
    found: dict[str, Any] = json.loads(succeed("status", "--json"))
    assert (found["ready"], found["gpus"], found["checkout"]) == (True, 2, str(CHECKOUT))
    assert found["pods"]
    assert all(pod.endswith(" Running") for pod in found["pods"])

    init = processes.node_init()
    succeed(*UP)
    assert processes.node_init() == init, "a second `up` left the running node alone"

    pause = next(image for image in found["images"] if "/pause:" in image)
    kubectl("apply", "-f", "-", stdin=json.dumps(gpu_pods(pause, 3)))
    wait_for("two pods run", lambda: phases() == ["Pending", "Running", "Running"])
    wait_for("the third is told", lambda: "Insufficient nvidia.com/gpu" in kubectl("get", "pods", "-o", "json"))
    succeed(*UP, "--gpus", "3")
    wait_for("the third GPU is used", lambda: phases() == ["Running"] * 3)

    query = "import socket; print(socket.gethostbyname('kubernetes.default.svc.cluster.local'))"
    resolver = "echo nameserver 10.96.0.10 > /tmp/resolv && mount --bind /tmp/resolv /etc/resolv.conf"
    answer = succeed("exec", "--", "unshare", "--mount", "bash", "-c", f'{resolver} && python3 -c "{query}"')
    assert answer == "10.96.0.1\n"

    elsewhere = tmp_path / "other"
    shutil.copytree(CHECKOUT / "e2e", elsewhere / "e2e", ignore=shutil.ignore_patterns("__pycache__"))
    for arguments in (UP, ("down",)):
        refused = tool(*arguments, script=elsewhere / owner.TOOL)
        assert refused.returncode == 2
        assert f"take it down with `{TOOL} down`" in refused.stderr
    assert processes.node_init() == init


def gpu_pods(image: str, count: int) -> dict[str, object]:
    container = {
        "name": "a",
        "image": image,
        "imagePullPolicy": "Never",
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    pods = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"gpu-{n}"}, "spec": spec} for n in range(count)]
    return {"apiVersion": "v1", "kind": "List", "items": pods}


def phases() -> list[str]:
    return sorted(kubectl("get", "pods", "-o", "jsonpath={.items[*].status.phase}").split())


def began() -> int | None:
    """When the node that is there was made; None: there is none, which may be over before anybody looks."""
    try:
        return (RUN / "ready").stat().st_mtime_ns
    except FileNotFoundError:
        return None


def test_killed_half_way_the_next_up_recovers(clean: dict[str, object]) -> None:
    for moment in (owner.RECORD, RUN / "ready", KUBECONFIG):
        with subprocess.Popen([str(TOOL), *UP], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
            wait_for(f"up reaches {moment.name}", moment.exists)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
    succeed(*UP)
    assert json.loads(succeed("status", "--json"))["ready"]
    first = began()
    with subprocess.Popen([str(TOOL), *UP, "--port", "16553"], stderr=subprocess.DEVNULL) as process:
        wait_for("up begins anew for another port", lambda: began() != first)
        process.send_signal(signal.SIGKILL)
    assert tool("status").returncode in {0, 3}
    succeed("down")
    assert tool("status").returncode == 3
    wait_for("all is as it was", lambda: machine() == clean)


def test_a_dead_caller_takes_the_cluster_with_it(clean: dict[str, object], bystander: subprocess.Popen[bytes]) -> None:
    succeed(*UP, "--tied-to", str(bystander.pid))
    assert json.loads(succeed("status", "--json"))["guarded"]
    bystander.kill()
    bystander.wait()
    wait_for("the guard has taken all down", lambda: machine() == clean)


@pytest.mark.parametrize(
    ("moment", "how"),
    [
        ("Start a cluster", signal.SIGKILL),
        ("Serve on the stock half", signal.SIGKILL),
        ("the gate Job runs", signal.SIGINT),
    ],
)
def test_a_demo_that_is_ended_leaves_nothing(clean: dict[str, object], moment: str, how: signal.Signals) -> None:
    command = [sys.executable, "-m", "demo"]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "e2e"), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as demo:
        assert demo.stdout is not None
        assert any(moment in line for line in demo.stdout), f"the demo never came to: {moment}"
        demo.send_signal(how)
        demo.communicate(timeout=120)
    assert demo.returncode == (130 if how == signal.SIGINT else -how)
    wait_for("all is as it was", lambda: machine() == clean)


@pytest.mark.usefixtures("clean")
def test_a_demo_refuses_to_run_on_a_cluster_that_is_up_and_leaves_it(tmp_path: Path) -> None:
    """Whose it is, it cannot know; a KUBECONFIG_DEMO that is no file is told as shortly, and takes nothing down."""
    succeed(*UP)
    init = processes.node_init()
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "e2e")}
    for more, words in (({}, "make cluster-down"), ({"KUBECONFIG_DEMO": str(tmp_path / "no")}, "is not a file")):
        done = subprocess.run(
            [sys.executable, "-m", "demo"],
            env=environment | more,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 2, done.stderr
        assert words in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
    assert processes.node_init() == init


@pytest.mark.usefixtures("clean")
def test_untied_it_lives_on(bystander: subprocess.Popen[bytes]) -> None:
    succeed(*UP, "--tied-to", str(bystander.pid))
    succeed("untie")
    bystander.kill()
    bystander.wait()
    found = json.loads(succeed("status", "--json"))
    assert (found["ready"], found["guarded"]) == (True, False)


def test_a_failing_up_says_why_in_one_sentence_and_cleans_up(clean: dict[str, object]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = tool(*UP, "--port", str(port))
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1] == (
        f"cluster: port {port} on 127.0.0.1 is taken (Address already in use); choose another with --port or API_PORT"
    )
    wait_for("all is as it was", lambda: machine() == clean)
