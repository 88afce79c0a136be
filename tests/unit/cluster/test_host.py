"""cgroup hierarchies of both versions, from the kernel's own text; ports; trees that are removed."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from cluster import host
from cluster.errors import ClusterError
from cluster.host import Hierarchy

if TYPE_CHECKING:
    from pathlib import Path

V1 = """\
22 27 0:20 / /sys rw,nosuid shared:7 - sysfs sysfs rw
30 22 0:26 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw shared:10 - cgroup2 cgroup2 rw
33 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:12 - cgroup cgroup rw,cpu,cpuacct
34 30 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset
99 30 0:31 / /mnt/elsewhere rw - cgroup cgroup rw,memory
"""
V2 = "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


def test_version_1_has_a_tree_per_hierarchy() -> None:
    found = host.hierarchies(V1)
    assert [(str(h.path), h.version) for h in found] == [
        ("/sys/fs/cgroup/unified", 2),
        ("/sys/fs/cgroup/cpu,cpuacct", 1),
        ("/sys/fs/cgroup/cpuset", 1),
    ]
    assert found[1].options >= {"cpu", "cpuacct"}
    assert not host.is_unified(found)


def test_version_2_has_one_tree() -> None:
    found = host.hierarchies(V2)
    assert [(str(h.path), h.version) for h in found] == [("/sys/fs/cgroup", 2)]
    assert host.is_unified(found)


def test_cgroups_are_made_filled_and_removed(tmp_path: Path) -> None:
    (tmp_path / "cpuset.cpus").write_text("0-1\n")
    (tmp_path / "cpuset.mems").write_text("0\n")
    mounted = [Hierarchy(tmp_path, 1, frozenset({"cpuset"}))]
    planned = host.planned_cgroups(mounted)
    assert planned == [str(tmp_path / "radix-islands"), str(tmp_path / "k8s.io")]
    host.make_cgroups(mounted)
    ours = tmp_path / "radix-islands"
    assert (ours / "cpuset.cpus").read_text() == "0-1\n"
    for file in ours.iterdir():  # the kernel's files vanish with their directory; these have to be taken away
        file.unlink()
    (ours / "kubepods" / "pod1").mkdir(parents=True)
    assert host.remove_cgroups(planned) == []
    assert not ours.exists()


def test_a_cgroup_that_was_there_before_is_not_ours_to_remove(tmp_path: Path) -> None:
    (tmp_path / "k8s.io").mkdir()
    assert host.planned_cgroups([Hierarchy(tmp_path, 1, frozenset())]) == [str(tmp_path / "radix-islands")]


def test_what_cannot_be_removed_is_named(tmp_path: Path) -> None:
    (tmp_path / "busy").write_text("a file keeps the directory from being removed, as a process keeps a cgroup")
    assert host.remove_cgroups([str(tmp_path)], patience=0) == [str(tmp_path)]


def test_controllers_that_were_added_are_taken_back(tmp_path: Path) -> None:
    control = tmp_path / "cgroup.subtree_control"
    control.write_text("cpu memory pids\n")
    assert host.restore_subtree_controls({str(control): "memory", str(tmp_path / "gone"): ""}) == []
    assert control.read_text() == "-cpu -pids"


def test_sysctls_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "PROC_SYS", tmp_path)
    for name, value in {"kernel/panic": "0\n", "vm/overcommit_memory": "0\n"}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(value)
    saved = host.read_sysctls()
    (tmp_path / "kernel/panic").write_text("10\n")
    assert host.restore_sysctls(saved) == []
    assert (tmp_path / "kernel/panic").read_text().strip() == "0"
    assert host.restore_sysctls({"kernel/none": "1"}) == [f"{tmp_path}/kernel/none: No such file or directory"]


@pytest.mark.parametrize("text", ["80", "65536", "-1", "x", "", "1e4"])
def test_a_port_that_cannot_be(text: str) -> None:
    with pytest.raises(ClusterError, match=r"--port \(or API_PORT\) is .*use a number from 1024 to 65535"):
        host.parse_port(text)


def test_a_port_that_can_be() -> None:
    assert host.parse_port("16443") == 16443


def test_a_taken_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ClusterError, match=f"port {port} on 127.0.0.1 is taken"):
            host.check_port(port)
    host.check_port(port)


def test_a_module_that_cannot_be_had_names_the_kernel_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ClusterError, match=r"lacks br_netfilter.*CONFIG_BRIDGE_NETFILTER"):
        host.need_feature("br_netfilter", lambda: False, "CONFIG_BRIDGE_NETFILTER")
