"""Configuration as the node's programs read it."""

from __future__ import annotations

import json
import tomllib

from cluster import binaries, render


def test_containerd_is_a_mere_store_without_cri() -> None:
    plugin = "io.containerd.grpc.v1.cri"
    full = tomllib.loads(render.containerd("localhost/x/pause:1", cri=True))
    assert full["plugins"][plugin]["sandbox_image"] == "localhost/x/pause:1"
    assert plugin not in full["disabled_plugins"]
    assert plugin in tomllib.loads(render.containerd("p", cri=False))["disabled_plugins"]


def test_kubeadm_reads_two_documents_of_the_version_we_build() -> None:
    init, cluster = (json.loads(document) for document in render.kubeadm(binaries.KUBERNETES).split("\n---\n"))
    assert init["kind"] == "InitConfiguration"
    assert cluster["kubernetesVersion"] == f"v{binaries.KUBERNETES}"
    assert "127.0.0.1" in cluster["apiServer"]["certSANs"]


def test_every_daemon_is_a_component_of_kubeall() -> None:
    daemons = render.daemons()
    assert list(daemons) == [
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubelet",
        "kube-proxy",
    ]
    for name, argv in daemons.items():
        assert argv[:2] == [render.KUBEALL, name]
        assert all(argument.startswith("--") and "=" in argument for argument in argv[2:])
    assert "--kubelet-preferred-address-types=InternalIP" in daemons["kube-apiserver"]


def test_kubelet_keeps_to_its_cgroup_and_its_images() -> None:
    config = render.kubelet()
    assert config["cgroupRoot"] == f"/{render.CGROUP}"
    assert config["imageGCHighThresholdPercent"] == 100
    assert config["clusterDNS"] == [render.DNS_IP]


def test_dns_is_where_kubelet_sends_pods() -> None:
    objects = {obj["kind"]: obj for obj in render.coredns("localhost/x/coredns:1")}
    assert objects["Service"]["spec"]["clusterIP"] == render.kubelet()["clusterDNS"][0]
    (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "localhost/x/coredns:1"


def test_a_group_subject_names_its_api_group_and_a_service_account_does_not() -> None:
    group = render.cluster_role_binding("a", "r", {"kind": "Group", "name": "g"})
    account = render.cluster_role_binding("a", "r", {"kind": "ServiceAccount", "name": "s", "namespace": "n"})
    assert group["subjects"] == [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "g"}]
    assert account["subjects"] == [{"kind": "ServiceAccount", "name": "s", "namespace": "n"}]


def test_users_get_the_port_of_the_machine() -> None:
    assert render.user_kubeconfig("server: https://127.0.0.1:6443\n", 17000) == "server: https://127.0.0.1:17000\n"


def test_gpus_are_set_in_capacity_and_allocatable() -> None:
    status = render.gpu_patch(3)["status"]
    assert status["capacity"] == status["allocatable"] == {"nvidia.com/gpu": "3"}
