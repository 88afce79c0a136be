"""A real etcd, API server and controller manager on loopback for tests: 5 s to start, gone with the test process.

The binaries are built once per machine by e2e/cluster. No root and no kubelet: pods stay Pending unless a test plays
it.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
CRD = ROOT / "crds/inferenceservices.radix-islands.dev.yaml"
KUBEADM = """
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {{advertiseAddress: 10.255.255.1, bindPort: {port}}}
nodeRegistration: {{name: none}}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.34.4
certificatesDir: {pki}
controlPlaneEndpoint: 127.0.0.1:{port}
apiServer: {{certSANs: [127.0.0.1, localhost]}}
"""


def binaries():
    """The folder of kubeall and helm."""
    done = subprocess.run([ROOT / "e2e/cluster/cluster", "binaries"], capture_output=True, text=True, check=True)
    return Path(done.stdout.strip().splitlines()[-1])


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def sweep():
    """Remove what a killed test run has left: its processes died with it, its folder did not."""
    for folder in Path(tempfile.gettempdir()).glob("control-plane-*-*"):
        if not Path("/proc", folder.name.split("-")[2]).exists():
            shutil.rmtree(folder, ignore_errors=True)


def until(what, check, timeout=60.0, every=0.05):
    """Wait until `check()` is true (AssertionErrors inside count as not yet), and return what it returned."""
    end = time.monotonic() + timeout
    last = None
    while time.monotonic() < end:
        try:
            if found := check():
                return found
        except (AssertionError, KeyError, TypeError, IndexError) as error:
            last = error
        time.sleep(every)
    raise AssertionError(f"not within {timeout} s: {what} ({last!r})")


class ControlPlane:
    """Use as a context manager. `kubeconfig` is an administrator's."""

    controller_manager_flags = ()  # besides those below

    def __init__(self):
        self.bin = binaries()
        sweep()
        self._scratch = tempfile.TemporaryDirectory(prefix=f"control-plane-{os.getpid()}-")
        self.dir = Path(self._scratch.name)
        self.kubeconfig = self.dir / "super-admin.conf"
        self._processes = {}
        self.port, self._etcd, self._peer = free_ports(3)

    def __enter__(self):
        try:
            self._certificates()
            self.start_etcd()
            self.start_api()
            self._start(
                "kube-controller-manager", "--kubeconfig", self.dir / "controller-manager.conf",
                "--service-account-private-key-file", self.dir / "pki/sa.key", "--root-ca-file",
                self.dir / "pki/ca.crt", "--use-service-account-credentials", "--leader-elect=false",
                "--secure-port", "0", "--allocate-node-cidrs=false", "--kube-api-qps", "200", "--kube-api-burst", "400",
                *self.controller_manager_flags,
            )  # fmt: skip
            self.kubectl("apply", "--server-side", "-f", CRD)
            # 429 "storage is (re)initializing" for a moment after that
            until("the new kind is served", lambda: self.try_kubectl("get", "iisvc", "-A").returncode == 0)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in reversed([*self._processes]):
            self._stop(name)
        self._scratch.cleanup()

    def start_etcd(self):
        etcd, peer = f"http://127.0.0.1:{self._etcd}", f"http://127.0.0.1:{self._peer}"
        self._start(
            "etcd", "--data-dir", self.dir / "etcd", "--unsafe-no-fsync", "--log-level", "error",
            "--listen-client-urls", etcd, "--advertise-client-urls", etcd, "--listen-peer-urls", peer,
        )  # fmt: skip

    def kill_etcd(self):
        """SIGKILL; what it has stored stays."""
        self._stop("etcd")

    def start_api(self):
        pki = self.dir / "pki"
        self._start(
            "kube-apiserver", "--etcd-servers", f"http://127.0.0.1:{self._etcd}", "--advertise-address", "127.0.0.1",
            "--bind-address", "127.0.0.1", "--secure-port", self.port, "--authorization-mode", "RBAC",
            "--client-ca-file", pki / "ca.crt", "--tls-cert-file", pki / "apiserver.crt",
            "--tls-private-key-file", pki / "apiserver.key", "--service-account-key-file", pki / "sa.pub",
            "--service-account-signing-key-file", pki / "sa.key",
            "--service-account-issuer", "https://kubernetes.default.svc.cluster.local",
            "--service-cluster-ip-range", "10.96.0.0/16", "--endpoint-reconciler-type", "none",
            "--audit-policy-file", self._audit_policy(), "--audit-log-path", self.audit_log,
        )  # fmt: skip
        until("the API server is ready", lambda: self.try_kubectl("get", "--raw", "/readyz").returncode == 0, every=0.2)

    def kill_api(self):
        """SIGKILL: connections end without a word."""
        self._stop("kube-apiserver")

    @contextlib.contextmanager
    def stopped_api(self):
        """SIGSTOP: connections stay open, and nobody answers."""
        process = self._processes["kube-apiserver"]
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    @property
    def audit_log(self):
        return self.dir / "audit.log"

    def writes(self, user_agent="radix-islands", since=0):
        """(verb, resource, code) of every write of a client since an offset of the log, but those of leases."""
        return [write for write in self._audited(user_agent, since) if write[1] != "leases"]

    def renewals(self, since, user_agent="radix-islands"):
        """How often a client has written a Lease since then: the clock by which it and the API server go on."""
        return sum(what == "leases" and code == 200 for _, what, code in self._audited(user_agent, since))

    def _audited(self, user_agent, since):
        found = []
        with self.audit_log.open(encoding="utf-8") as file:
            file.seek(since)
            for line in file:
                if not line.endswith("\n"):  # it is being written
                    break
                event = json.loads(line)
                ref = event.get("objectRef", {})
                if event.get("userAgent") == user_agent:
                    what = "/".join(filter(None, (ref.get("resource"), ref.get("subresource"))))
                    found.append((event["verb"], what, event.get("responseStatus", {}).get("code")))
        return found

    def mark(self):
        """The end of the last whole line of the audit log, for `writes(since=)`."""
        size = self.audit_log.stat().st_size
        with self.audit_log.open("rb") as file:
            start = max(0, size - 1_048_576)  # a line is shorter
            file.seek(start)
            return start + file.read(size - start).rfind(b"\n") + 1

    def try_kubectl(self, *args, stdin=None):
        command = [self.bin / "kubeall", "kubectl", "--kubeconfig", self.kubeconfig, *map(str, args)]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=120)

    def kubectl(self, *args, stdin=None):
        done = self.try_kubectl(*args, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(map(str, args))}: {done.stderr}"
        return done.stdout

    def get(self, kind, name=None, namespace="default", **labels):
        """One object (None: not there), or the list of those with these labels."""
        if name is not None:
            done = self.try_kubectl("get", kind, name, "-n", namespace, "-o", "json", "--ignore-not-found")
            assert done.returncode == 0, done.stderr
            return json.loads(done.stdout) if done.stdout.strip() else None
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        return json.loads(self.kubectl("get", kind, "-n", namespace, "-l", selector, "-o", "json"))["items"]

    def apply(self, obj):
        self.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(obj))

    def merge(self, kind, name, body, namespace="default", subresource=None):
        extra = ["--subresource", subresource] if subresource else []
        patch = ["--type", "merge", "--patch-file", "/dev/stdin", *extra]  # it may be longer than a command line
        self.kubectl("patch", kind, name, "-n", namespace, *patch, stdin=json.dumps(body))

    def _start(self, name, *args):
        log = (self.dir / f"{name}.log").open("ab")
        command = ["setpriv", "--pdeathsig", "KILL", self.bin / "kubeall", name, *map(str, args)]
        self._processes[name] = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        log.close()

    def _stop(self, name):
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def _certificates(self):
        config = self.dir / "kubeadm.yaml"
        config.write_text(KUBEADM.format(port=self.port, pki=self.dir / "pki"))
        for phase in ("certs", "kubeconfig"):
            where = ["--kubeconfig-dir", self.dir] if phase == "kubeconfig" else []
            command = [self.bin / "kubeall", "kubeadm", "init", "phase", phase, "all", *where, "--config", config]
            subprocess.run(command, capture_output=True, check=True)
        for file in self.dir.glob("*.conf"):  # kubeadm refuses a loopback address here
            file.write_text(file.read_text().replace("https://10.255.255.1:", "https://127.0.0.1:"))

    def _audit_policy(self):
        policy = self.dir / "audit-policy.yaml"
        policy.write_text(
            "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n"
            "  - {level: Metadata, verbs: [create, update, patch, delete]}\n  - {level: None}\n"
        )
        return policy


class OperatorProcess:
    """`island-operator run` as a subprocess. `port` serves probes and metrics once it has said so."""

    def __init__(self, kubeconfig, *flags):
        self._scratch = tempfile.TemporaryDirectory(prefix="operator-")
        self.log = Path(self._scratch.name) / "log"
        command = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "island_operator.cli.main", "run"]
        command += ["--kubeconfig", str(kubeconfig), "--port", "0", *flags]
        env = {k: v for k, v in os.environ.items() if k not in {"KUBECONFIG", "KUBERNETES_SERVICE_HOST"}}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stderr=log, stdout=log, env=env)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()  # so that it hands the lease back
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._scratch.cleanup()

    def lines(self):
        whole, _, _ = self.log.read_text().rpartition("\n")  # behind it a line is being written
        return [json.loads(line) if line.startswith("{") else {"message": line} for line in whole.splitlines()]

    def said(self, start):
        """The first message that begins so, or None."""
        return next((line["message"] for line in self.lines() if line["message"].startswith(start)), None)

    def serving(self):
        until("the operator serves", lambda: self.said("serving ") or self._must_live())
        return self

    def stop(self, number=signal.SIGTERM):
        """Signal it; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout=20)

    @property
    def port(self):
        return int(self.said("probes and metrics on port ").rsplit(" ", 1)[1])

    def rss_mib(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024

    def _must_live(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"the operator ended with {self.process.returncode}: {self.lines()[-5:]}")
