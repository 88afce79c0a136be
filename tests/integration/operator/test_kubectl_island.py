"""`kubectl island` against a real API server, a real operator and the real kubectl. The tests play the kubelet.

The commands that docs/kubectl-island.md shows are run here, and print what it shows; `DOCS=write` puts it there.
"""

import base64
import contextlib
import copy
import fcntl
import io
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
import yaml
from support.control_plane import ROOT, ControlPlane, OperatorProcess, until

from island_engine.gate.report import Summary, Verdict
from island_operator.cli.kubectl import app

INSTANCE, ROLE = "radix-islands.dev/instance", "radix-islands.dev/role"
PLUGIN = Path(sys.executable).with_name("kubectl-island")
GUIDE = ROOT / "docs" / "kubectl-island.md"
EVER = "2026-01-01T00:00:00Z"
PASS = Summary(
    Verdict.PASS, "Equal", "1,204 answers are equal, token for token", "sha256:6d1f0c7a", 1204, 20_992, 92.4
).to_termination()
SHOWN = re.compile(r"```console\n(\$ .*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def plane():
    with ControlPlane() as plane:
        yield plane


@pytest.fixture(scope="module")
def operator(plane):
    with OperatorProcess(plane.kubeconfig) as process:
        yield process.serving()


class Island:
    """The plugin on one kubeconfig."""

    def __init__(self, kubeconfig):
        self.kubeconfig = kubeconfig

    def run(self, *words):
        """Exit code, standard output and standard error."""
        where = [] if "--kubeconfig" in words else ["--kubeconfig", str(self.kubeconfig)]
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            code = app.main([*words, *where])
        return code, out.getvalue(), err.getvalue()

    def __call__(self, *words, code=0):
        """Standard output; of bad input the sentence."""
        done, out, err = self.run(*words)
        assert done == code, (done, out, err)
        if code != 2:
            return out
        assert len(err.splitlines()) == 1
        return err.strip().removeprefix("kubectl island: ")

    def json(self, *words, code=0):
        return json.loads(self(*words, "--json", code=code))

    @property
    def env(self):
        """For the plugin as a process of its own."""
        env = {k: v for k, v in os.environ.items() if k != "KUBERNETES_SERVICE_HOST"}
        return env | {"KUBECONFIG": str(self.kubeconfig)}


@pytest.fixture(scope="module")
def kubeconfig(plane):
    """With files instead of inline certificates: kubernetes.aio unpacks those once in a process, for a folder that the
    first connection to close takes away.
    """
    config = yaml.safe_load(plane.kubeconfig.read_text())
    for holder in (config["clusters"][0]["cluster"], config["users"][0]["user"]):
        for key in [key for key in holder if key.endswith("-data")]:
            file = plane.dir / f"plugin-{key}"
            file.write_bytes(base64.b64decode(holder.pop(key)))
            holder[key.removesuffix("-data")] = str(file)
    path = plane.dir / "plugin.conf"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture(scope="module")
def island(kubeconfig):
    return Island(kubeconfig)


def example(name, **spec):
    obj = yaml.safe_load((ROOT / "examples/tiny-gemma.yaml").read_text())
    obj["metadata"].update(name=name, namespace="default")
    obj["spec"].update(copy.deepcopy(spec))
    return obj


def play(plane, name):
    """The kubelet: engine pods run and are Ready, a gate's pod ends with a PASS."""
    ready = [{"type": kind, "status": "True", "lastTransitionTime": EVER} for kind in ("PodScheduled", "Ready")]
    ended = {"exitCode": 0, "reason": "Completed", "message": PASS, "startedAt": EVER, "finishedAt": EVER}
    for pod in plane.get("pods", **{INSTANCE: name}):
        if pod["status"]["phase"] != "Pending" or "deletionTimestamp" in pod["metadata"]:
            continue
        engine = pod["metadata"]["labels"][ROLE] == "engine"
        state = {"running": {"startedAt": EVER}} if engine else {"terminated": ended}
        container = {"name": "engine", "image": "i", "imageID": "", "restartCount": 0, "ready": engine, "state": state}
        phase, conditions = ("Running", ready) if engine else ("Succeeded", ready[:1])
        body = {"phase": phase, "conditions": conditions, "containerStatuses": [container]}
        plane.merge("pod", pod["metadata"]["name"], {"status": body}, subresource="status")


def reach(plane, name, phase, *fields):
    """Wait for a phase, and for fields of its run."""

    def there():
        play(plane, name)
        status = plane.get("iisvc", name)["status"]
        return status["phase"] == phase and all(status["run"][field] for field in fields)

    until(f"{name} is {phase}", there)


@pytest.fixture(scope="module")
def gemma(plane, operator):
    """Stock serves, islands have passed their gate and hold as a canary for an hour; a node offers four GPUs."""
    name = "gemma"
    plane.kubectl(
        "create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    )
    gpus = {"status": {"capacity": {"nvidia.com/gpu": "4"}, "allocatable": {"nvidia.com/gpu": "4"}}}
    plane.merge("node", "n", gpus, subresource="status")
    plane.apply(example(name, rollout={"steps": [{"weight": 50, "pause": "1h"}]}))
    reach(plane, name, "Stable")
    plane.merge("iisvc", name, {"spec": {"islands": {"enabled": True}}})
    reach(plane, name, "Canary", "heldSince")
    until("its report is kept", lambda: plane.get("iisvc", name)["status"]["gate"]["report"])
    return name


class Steady:
    """Without what differs from run to run: names made of digests or at random, times, this control plane's address."""

    def __init__(self):
        self.names = {}

    def __call__(self, text):
        text = re.sub(r"(?<![0-9a-f])[0-9a-f]{10}(?![0-9a-f])", self._digest, text)
        text = re.sub(r"(?<=[0-9a-f]-)([a-z0-9]{8,10}-)?[a-z0-9]{5}\b", self._random, text)
        text = re.sub(r"https://127.0.0.1:\d+", "https://127.0.0.1:6443", text)
        text = re.sub(r"\S+ by Lease default/", "island-operator_1f0c5a7e by Lease default/", text)
        return re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "2026-11-30T12:00:00Z", text)

    def _digest(self, found):
        return self.names.setdefault(found.group(), f"{(len(self.names) + 7) * 2_654_435_761 % 16**10:010x}")

    def _random(self, found):
        kept = "5d9c7b6f8d-" if found.group(1) else ""
        return self.names.setdefault(found.group(), f"{kept}{'kwxyz'[len(self.names) % 5]}{len(self.names)}bfh"[:16])


def timeless(text):
    """For comparing: without ages, and without the widths that come with them."""
    text = re.sub(r"\b\d+[smhd](\d+[smh])?\b|renewed \d+ s ago", "AGE", text)
    return [" ".join(line.split()) for line in text.splitlines()]


def test_the_guide_shows_what_its_commands_print(plane, island, gemma):
    guide = GUIDE.read_text(encoding="utf-8")
    printed, steady = guide, Steady()
    assert len(SHOWN.findall(guide)) >= 7
    for block in SHOWN.findall(guide):
        command, _, output = block.partition("\n")
        words = command.removeprefix("$ kubectl island ").split()
        said = steady("".join(island.run(*words)[1:]))
        printed = printed.replace(block, f"{command}\n{said}")
        if os.environ.get("DOCS") != "write":
            assert timeless(output) == timeless(said), command
    if os.environ.get("DOCS") == "write":
        GUIDE.write_text(printed, encoding="utf-8")


def test_programs_get_what_people_see(plane, island, gemma):
    reach(plane, gemma, "Stable")
    seen = island.json("status", gemma)
    assert (seen["phase"], seen["health"]) == ("Stable", "Healthy")
    assert [r["roles"] for r in seen["revisions"]] == [["stable"], []]
    assert [r["pair"]["islands"] for r in seen["revisions"]] == [True, False]
    assert island.json("gate", gemma)["verdict"] == "PASS"
    assert [verb["verb"] for verb in island.json("history", gemma)["verbs"]] == ["pause", "promote"]
    old = seen["revisions"][1]["name"]
    changes = island.json("diff", gemma, old[:5], "stable", code=1)["changes"]
    assert changes == [{"path": "islands.enabled", "old": False, "new": True}]
    assert island.json("diff", gemma, "stable", "desired")["changes"] == []


def test_a_plan_takes_the_spec_s_values_and_says_what_its_pair_runs(island, gemma, tmp_path):
    said = island.json("plan", gemma, "--isl", "2048", "--osl", "512")
    assert (said["model"], said["page"], said["kv_bytes"]) == (gemma, 64, 9_000_000)
    assert [half["half"] for half in said["spec"]] == ["islands", "stock"]
    assert "As it is now:" in island("plan", gemma, "--isl", "2048", "--osl", "512")
    file = tmp_path / "plan.json"
    assert island("plan", gemma, "--isl", "2048", "--osl", "512", "--json", str(file)) == ""
    assert json.loads(file.read_text()) == said
    assert island("plan", gemma, "--model", "m", code=2).startswith("--model does not go with a NAME")
    assert island("plan", gemma, "--isl", "2048", code=2) == "--isl alone says too little: give --osl too"


def test_the_report_of_a_gate_is_saved_as_a_page(island, gemma, tmp_path):
    page = tmp_path / "gate.html"
    assert island("gate", gemma, "--report", "--output", str(page)) == f"Saved to {page}.\n"
    assert "PASS: Equal" in page.read_text()
    assert island("gate", gemma, "--report").startswith("<!doctype html>")
    assert "cannot be written" in island("gate", gemma, "--report", "--output", str(tmp_path), code=2)


def test_a_verb_is_carried_out_and_signed_and_one_that_makes_no_sense_is_refused(plane, island, gemma):
    assert island.json("pause", gemma, code=1)["outcome"].startswith("pause was refused: no rollout is in progress")
    done = island.json("rollback", gemma)
    assert done["done"]
    assert "gives way to revision" in done["outcome"]
    until("the annotation is gone", lambda: "annotations" not in plane.get("iisvc", gemma)["metadata"])
    live = plane.kubectl("get", "iisvc", gemma, "-o", "json", "--show-managed-fields")
    assert {m["manager"] for m in json.loads(live)["metadata"]["managedFields"]} >= {"kubectl", "radix-islands-status"}
    reach(plane, gemma, "Stable")
    assert island.json("retry", gemma)["done"]


def test_kubectl_finds_the_plugin_on_its_path(plane, island, gemma):
    env = island.env | {"PATH": f"{PLUGIN.parent}:{plane.bin}:{os.environ['PATH']}"}
    kubectl = [plane.bin / "kubectl", "island", "status", gemma, "--namespace", "default", "--json"]
    done = subprocess.run(kubectl, env=env, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout)["name"] == gemma


def test_watching_prints_what_changes_and_ends_quietly(plane, island, gemma):
    with subprocess.Popen(
        [PLUGIN, "status", gemma, "--watch"], env=island.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as watching:
        lines = iter(watching.stdout.readline, "")
        assert any(line.startswith("Replicas:        2 desired") for line in lines)
        plane.merge("iisvc", gemma, {"spec": {"replicas": 3}})
        assert any(line.startswith("Replicas:        3 desired") for line in lines)
        watching.send_signal(signal.SIGINT)
        _, told = watching.communicate(timeout=60)  # reads on: it may have more to print before it hears of that
        assert (watching.returncode, told) == (130, "")


def test_on_a_terminal_the_tree_is_drawn_over_itself_and_the_last_of_it_stays(island, gemma):
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))  # here: before it looks
        os.execve(PLUGIN, [PLUGIN, "status", gemma, "--watch"], island.env | {"TERM": "xterm"})  # noqa: S606
    drawn = b""
    while drawn.count(b"Replicas:") < 2:
        drawn += os.read(terminal, 65536)
    os.kill(pid, signal.SIGINT)
    with contextlib.suppress(OSError):  # how a terminal says that its program has ended
        while more := os.read(terminal, 65536):
            drawn += more
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    screen, _, left = drawn.partition(b"\x1b[?1049l")
    assert b"\x1b[?1049h" in screen
    assert left.count(b"Replicas:") == 1
    assert b"Traceback" not in left


def test_a_name_that_is_not_there_is_answered_with_those_that_are(plane, island, gemma):
    assert island("status", "gema", code=2) == f"no InferenceService gema in namespace default: there is {gemma}"
    assert "and no other either; look elsewhere with --namespace" in island("history", gemma, "-n", "models", code=2)
    plane.kubectl("create", "namespace", "models")
    assert island("status", "-n", "models") == "No InferenceServices in namespace models.\n"
    assert island.json("status", gemma, "-A")["namespace"] == "default"
    assert gemma in island("status", "-A")
    assert "--watch needs the NAME" in island("status", "--watch", code=2)


def test_a_cluster_that_cannot_be_had_is_one_sentence(plane, kubeconfig, island, tmp_path):
    names = island("status", "--context", "nowhere", code=2)
    assert names == "--context nowhere is not in the kubeconfig: use one of kubernetes-super-admin@kubernetes"
    missing = island("status", "--kubeconfig", str(tmp_path / "none"), code=2)
    assert missing.endswith("no such file; give a kubeconfig with --kubeconfig")
    closed = tmp_path / "closed"
    closed.write_text(kubeconfig.read_text().replace(f":{plane.port}", ":1"))
    said = island("status", "--kubeconfig", str(closed), code=2)
    assert said.startswith("the API server at https://127.0.0.1:1 does not answer: ")
    said = island("doctor", "--kubeconfig", str(closed), code=1)
    assert "https://127.0.0.1:1 does not answer" in said


def test_somebody_without_rights_hears_which_ones_to_ask_for(plane, kubeconfig, island, tmp_path):
    plane.kubectl("create", "serviceaccount", "nobody")
    config = yaml.safe_load(kubeconfig.read_text())
    config["users"][0]["user"] = {"token": plane.kubectl("create", "token", "nobody").strip()}
    path = tmp_path / "nobody"
    path.write_text(yaml.safe_dump(config))
    assert 'cannot list resource "inferenceservices"' in island("status", "--kubeconfig", str(path), code=2)
    found = island.json("doctor", "--kubeconfig", str(path), code=1)
    told = [line["told"] for line in found if line["ok"] is False]
    assert any("ask for patch inferenceservices" in line for line in told)
    assert any("ask for get pods/log, get configmaps" in line for line in told)
    config["users"][0]["user"] = {"token": "wrong"}
    path.write_text(yaml.safe_dump(config))
    assert "does not know you" in island("status", "--kubeconfig", str(path), code=2)


def test_a_verb_without_an_operator_says_how_to_take_it_back(plane, operator, island, gemma):
    assert operator.stop() == 0
    code, _, said = island.run("pause", gemma, "--timeout", "1")
    assert code == 1
    assert said.strip().endswith(f"kubectl annotate iisvc {gemma} -n default radix-islands.dev/pause-")
    assert {line["check"] for line in island.json("doctor", code=1) if line["ok"] is False} == {"operator", "leader"}


def test_a_cluster_without_the_crd_is_told_what_to_install(plane, island, gemma):
    plane.kubectl("delete", "crd", "inferenceservices.radix-islands.dev", "--timeout=30s")
    words = "does not know InferenceServices: install the operator's chart"
    until("the path is gone too", lambda: words in island.run("status")[2])
    assert words in island("status", code=2)
    assert "CRD" in {line["check"] for line in island.json("doctor", code=1) if line["ok"] is False}
