"""Configuration of the node's programs, as text and argument lists. Pure: paths here are paths inside the node.

YAML readers take JSON, so every Kubernetes file is JSON.
"""

from __future__ import annotations

import json
from typing import Any

from .paths import RUN

Object = dict[str, Any]

NODE_NAME = "island-node"
NODE_IP = "10.77.0.2"
POD_CIDR = "10.88.0.0/24"
SERVICE_CIDR = "10.96.0.0/16"
DNS_IP = "10.96.0.10"
CGROUP = "radix-islands"
CONTAINERD_SOCKET = RUN / "containerd.sock"  # the machine sees it too: images are imported from there
KUBEALL = "/opt/radix-islands/bin/kubeall"
PKI = RUN / "pki"
CONFIG = RUN / "config"
DEFAULT_PORT = 16443


def containerd(pause: str, *, cri: bool) -> str:
    """Configuration of containerd; without `cri` it is only an image store, for work on what is stored."""
    disabled = [f"io.containerd.snapshotter.v1.{name}" for name in ("aufs", "btrfs", "devmapper", "zfs")]
    disabled += ["io.containerd.internal.v1.opt"]  # it would make /opt/containerd
    if not cri:
        disabled += ["io.containerd.grpc.v1.cri"]
    return f"""\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = {json.dumps(disabled)}
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true   # a machine without CAP_SYS_RESOURCE refuses a score below the parent's
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{CONFIG}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
"""


def cni() -> Object:
    """Pods on one bridge, addresses from POD_CIDR, reaching the node and each other."""
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": True,
        "hairpinMode": True,  # a pod reaches itself through its Service
        "ipam": {
            "type": "host-local",
            "dataDir": "/run/cni-ipam",
            "ranges": [[{"subnet": POD_CIDR}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True}
    return {"cniVersion": "1.0.0", "name": "radix-islands", "plugins": [bridge, portmap]}


def kubeadm(version: str) -> str:
    """Two documents for kubeadm's certificate and kubeconfig phases; elliptic curves, because RSA takes seconds."""
    init = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "InitConfiguration",
        "localAPIEndpoint": {"advertiseAddress": NODE_IP, "bindPort": 6443},
        "nodeRegistration": {"name": NODE_NAME, "criSocket": f"unix://{CONTAINERD_SOCKET}"},
    }
    cluster = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "ClusterConfiguration",
        "kubernetesVersion": f"v{version}",
        "encryptionAlgorithm": "ECDSA-P256",
        "certificatesDir": str(PKI),
        "controlPlaneEndpoint": "127.0.0.1:6443",
        "apiServer": {"certSANs": ["127.0.0.1", "localhost", NODE_IP]},
        "networking": {"podSubnet": POD_CIDR, "serviceSubnet": SERVICE_CIDR},
    }
    return "\n---\n".join(json.dumps(document) for document in (init, cluster))


def kubelet() -> Object:
    """One node that owns the cgroup subtree /radix-islands, pulls nothing, and judges no disk."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{PKI}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{CGROUP}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "maxOpenFiles": 20000,  # raising the limit beyond the caller's needs CAP_SYS_RESOURCE
        "imageGCHighThresholdPercent": 100,  # our images cannot be pulled again
        "evictionHard": {"memory.available": "200Mi"},
        "clusterDNS": [DNS_IP],
        "clusterDomain": "cluster.local",
        "resolvConf": "",  # nothing of the machine's names or networks reaches a pod
        "localStorageCapacityIsolation": False,
        "nodeStatusUpdateFrequency": "5s",
        "syncFrequency": "10s",
    }


def kube_proxy() -> Object:
    """Services by iptables in the node's own network namespace; limits of the machine's kernel stay as they are."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": f"{CONFIG}/admin.conf"},
        "mode": "iptables",
        "clusterCIDR": POD_CIDR,
        "hostnameOverride": NODE_NAME,
        "conntrack": {"maxPerCore": 0, "min": 0},
    }


def _flags(**values: object) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in values.items()]


def etcd() -> list[str]:
    """Arguments of etcd: loopback of the node only, and no fsync, for nothing here outlives `down`."""
    client = "http://127.0.0.1:2379"
    return [
        *_flags(data_dir="/var/lib/etcd", listen_client_urls=client, advertise_client_urls=client),
        *_flags(listen_peer_urls="http://127.0.0.1:2380", log_level="warn", unsafe_no_fsync="true"),
    ]


def apiserver() -> list[str]:
    """Arguments of the API server, reachable in the node's network namespace alone."""
    return [
        *_flags(etcd_servers="http://127.0.0.1:2379", advertise_address=NODE_IP, secure_port=6443),
        *_flags(authorization_mode="Node,RBAC", enable_admission_plugins="NodeRestriction", allow_privileged="true"),
        *_flags(client_ca_file=PKI / "ca.crt", tls_cert_file=PKI / "apiserver.crt"),
        *_flags(tls_private_key_file=PKI / "apiserver.key", service_cluster_ip_range=SERVICE_CIDR),
        *_flags(kubelet_client_certificate=PKI / "apiserver-kubelet-client.crt"),
        *_flags(kubelet_client_key=PKI / "apiserver-kubelet-client.key"),
        # else logs and exec would look the node's name up
        *_flags(kubelet_preferred_address_types="InternalIP"),
        *_flags(service_account_key_file=PKI / "sa.pub", service_account_signing_key_file=PKI / "sa.key"),
        *_flags(service_account_issuer="https://kubernetes.default.svc.cluster.local"),
        *_flags(requestheader_client_ca_file=PKI / "front-proxy-ca.crt"),
        *_flags(proxy_client_cert_file=PKI / "front-proxy-client.crt"),
        *_flags(proxy_client_key_file=PKI / "front-proxy-client.key"),
        *_flags(requestheader_username_headers="X-Remote-User", requestheader_group_headers="X-Remote-Group"),
        *_flags(requestheader_extra_headers_prefix="X-Remote-Extra-"),
    ]


def _kubeconfigs(name: str) -> list[str]:
    file = CONFIG / f"{name}.conf"
    return [
        *_flags(kubeconfig=file, authentication_kubeconfig=file, authorization_kubeconfig=file, leader_elect="false"),
        *_flags(kube_api_qps=300, kube_api_burst=600),  # the defaults of 20 and 30 alone stretch the start by 4 s
    ]


def controller_manager() -> list[str]:
    """Arguments of the controller manager."""
    return [
        *_kubeconfigs("controller-manager"),
        *_flags(service_account_private_key_file=PKI / "sa.key", root_ca_file=PKI / "ca.crt"),
        *_flags(use_service_account_credentials="true", cluster_cidr=POD_CIDR),
        *_flags(cluster_signing_cert_file=PKI / "ca.crt", cluster_signing_key_file=PKI / "ca.key"),
    ]


def daemons() -> dict[str, list[str]]:
    """Name -> whole command line, of everything that runs beside containerd."""
    arguments = {
        "etcd": etcd(),
        "kube-apiserver": apiserver(),
        "kube-controller-manager": controller_manager(),
        "kube-scheduler": _kubeconfigs("scheduler"),
        "kubelet": [
            *_flags(config=CONFIG / "kubelet.json", kubeconfig=CONFIG / "kubelet.conf", node_ip=NODE_IP),
            *_flags(hostname_override=NODE_NAME, root_dir="/var/lib/kubelet"),
        ],
        "kube-proxy": _flags(config=CONFIG / "kube-proxy.json"),
    }
    return {name: [KUBEALL, name, *rest] for name, rest in arguments.items()}


def user_kubeconfig(admin: str, port: int) -> str:
    """The administrator's kubeconfig, pointed at the machine's loopback."""
    return admin.replace("https://127.0.0.1:6443", f"https://127.0.0.1:{port}")


def coredns(image: str) -> list[Object]:
    """CoreDNS as Kubernetes expects it: Service kube-dns at DNS_IP."""
    meta = {"name": "coredns", "namespace": "kube-system"}
    role = {"name": "system:coredns"}
    watch = ["list", "watch"]
    corefile = ".:53 {\n errors\n ready\n kubernetes cluster.local in-addr.arpa\n cache 5\n}\n"
    container = {
        "name": "coredns",
        "image": image,
        "imagePullPolicy": "Never",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns"}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
    }
    pod = {
        "serviceAccountName": "coredns",
        "dnsPolicy": "Default",
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
    }
    label = {"k8s-app": "kube-dns"}
    rbac = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRole",
            "metadata": role,
            "rules": [
                {"apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"], "verbs": watch},
                {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": watch},
            ],
        },
        cluster_role_binding("system:coredns", "system:coredns", {"kind": "ServiceAccount", **meta}),
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"Corefile": corefile}},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": meta,
            "spec": {"selector": {"matchLabels": label}, "template": {"metadata": {"labels": label}, "spec": pod}},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": "kube-system"},
            "spec": {
                "clusterIP": DNS_IP,
                "selector": label,
                "ports": [
                    {"name": "dns", "port": 53, "protocol": "UDP"},
                    {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
                ],
            },
        },
    ]


def cluster_role_binding(name: str, role: str, subject: Object) -> Object:
    """Bind a ClusterRole to one subject."""
    group = "rbac.authorization.k8s.io"
    subject = {"apiGroup": group, **subject} if subject["kind"] == "Group" else subject
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }


def gpu_patch(count: int) -> Object:
    """A merge patch of the node's status that makes the real scheduler see `count` GPUs."""
    amount = {"nvidia.com/gpu": str(count)}
    return {"status": {"capacity": amount, "allocatable": amount}}
