"""What surrounds the work: probes, metrics, logs, the command line, kopf's settings."""

import asyncio
import json
import logging
import subprocess
import sys

import aiohttp
import pytest

from island_operator.cli.main import main
from island_operator.cluster.cache import Cache, Key
from island_operator.cluster.kinds import CHILDREN, KINDS, PARENT, WATCHED
from island_operator.cluster.protocol import Credentials
from island_operator.runtime import health, triggers
from island_operator.runtime.logs import JsonFormatter, TextFormatter, about
from island_operator.runtime.metrics import Metrics


async def test_probes_say_what_is_wrong():
    state = {"stalled": 0.0, "missing": "the cache is not filled yet"}

    async def get(path):
        async with session.get(f"http://127.0.0.1:{port}{path}") as reply:
            return reply.status, (await reply.text()).strip()

    async with (
        health.serving(0, lambda: state["stalled"], lambda: state["missing"], lambda: b"m 1\n") as port,
        aiohttp.ClientSession() as session,
    ):
        assert await get("/healthz") == (200, "ok")
        assert await get("/readyz") == (503, "the cache is not filled yet")
        assert await get("/metrics") == (200, "m 1")
        state.update(stalled=121.0, missing="")
        assert await get("/healthz") == (503, "no pass ended for 121 s")
        assert await get("/readyz") == (200, "ok")


def test_metrics_count_verdicts_once_per_job_and_rollbacks_when_they_happen():
    metrics = Metrics()
    metrics.bind(list, lambda: 3, lambda: True, lambda: 4)
    rolled = {"conditions": [{"type": "RolledBack", "status": "True", "reason": "GateFailed"}]}
    times = {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:01:30Z"}
    failed = {"gate": {"verdict": "FAIL", "job": "g1", **times}}
    metrics.recorded({}, failed)
    metrics.recorded(failed, {**failed, "phase": "Stable", **rolled})
    metrics.recorded({**failed, **rolled}, {"gate": {"verdict": "FAIL", "job": "g2"}, **rolled})
    theirs = {"conditions": [{"type": "RolledBack", "status": "True", "reason": "AnyWordOfAReport"}]}
    metrics.recorded({}, theirs)
    verbs = [{"name": "abort", "at": "t"}, {"name": "promot", "at": "t"}]
    metrics.recorded({"verbs": [{}], "conditions": [{}]}, {})  # what a newer release left
    metrics.recorded({"verbs": verbs[:1]}, {"verbs": verbs})
    metrics.recorded({}, {"verbs": verbs[:1]})
    metrics.scraped("error")
    metrics.requested("apply", "Deployment", 200)
    metrics.requested("list", "Pod", 403)
    metrics.requested("update", "Lease", 200)
    metrics.finished("error", 0.1)
    metrics.waited(0.2)
    metrics.seen("Pod")
    lines = metrics.render().decode().splitlines()
    for line in (
        'island_operator_gate_results_total{verdict="FAIL"} 2.0',
        'island_operator_gate_seconds_sum{verdict="FAIL"} 90.0',
        'island_operator_rollbacks_total{cause="GateFailed"} 1.0',
        'island_operator_rollbacks_total{cause="Other"} 1.0',
        'island_operator_verbs_total{verb="abort"} 1.0',
        'island_operator_verbs_total{verb="unknown"} 1.0',
        'island_operator_scrapes_total{result="error"} 1.0',
        'island_operator_api_writes_total{kind="Deployment",verb="apply"} 1.0',
        'island_operator_api_errors_total{code="403"} 1.0',
        'island_operator_reconciles_total{result="error"} 1.0',
        'island_operator_reconciles_total{result="success"} 0.0',
        "island_operator_queue_depth 3.0",
        "island_operator_leading 1.0",
        "island_operator_events_dropped 4.0",
        'island_operator_watch_events_total{kind="Pod"} 1.0',
    ):
        assert line in lines
    assert not [line for line in lines if '"Lease"' in line]


def test_metrics_tell_phases_and_conditions_of_what_the_cache_holds_now():
    def resource(name, phase, **conditions):
        told = [{"type": kind, "status": status, "reason": "Why"} for kind, status in conditions.items()]
        return {"metadata": {"namespace": "ns", "name": name}, "status": {"phase": phase, "conditions": told}}

    held = [resource("a", "Stable", Ready="True", GatePassed="Unknown"), resource("b", "Gating", Ready="False")]
    metrics = Metrics()
    metrics.bind(lambda: held, lambda: 0, lambda: True, lambda: 0)

    def series():
        names = ("island_operator_phase{", "island_operator_condition{")
        return [line for line in metrics.render().decode().splitlines() if line.startswith(names)]

    assert series() == [
        'island_operator_phase{phase="Gating"} 1.0',
        'island_operator_phase{phase="Stable"} 1.0',
        'island_operator_condition{condition="Ready",inferenceservice="a",namespace="ns",reason="Why"} 1.0',
        'island_operator_condition{condition="Ready",inferenceservice="b",namespace="ns",reason="Why"} 0.0',
    ]
    held[:] = [{"metadata": {"namespace": "ns", "name": "new"}}]
    assert series() == ['island_operator_phase{phase="Unknown"} 1.0']


def test_every_log_line_is_one_json_object_that_names_its_resource():
    record = logging.LogRecord("x", logging.WARNING, "f", 1, "two\nlines %s", ("é",), None)
    with about("default/x"):
        line = JsonFormatter().format(record)
        assert "[default/x] two" in TextFormatter().format(record)
    assert "\n" not in line
    told = json.loads(line)
    assert (told["level"], told["resource"], told["message"]) == ("warning", "default/x", "two\nlines é")
    assert "resource" not in json.loads(JsonFormatter().format(record))


def test_a_traceback_stays_in_its_line():
    try:
        raise ValueError("why")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "f", 1, "failed", (), sys.exc_info())
    assert "ValueError: why" in json.loads(JsonFormatter().format(record))["error"]


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["run", "--port", "70000"], "'70000' is not a port: use 0 to 65535"),
        (["run", "--workers", "0"], "'0' is not a count: use 1 or more"),
        (["run", "--log-format", "xml"], "invalid choice: 'xml'"),
        ([], "the following arguments are required: run|crd"),
    ],
)
def test_bad_flags_are_refused_with_2_and_a_sentence(argv, sentence, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(argv)
    assert exit_.value.code == 2
    assert sentence in capsys.readouterr().err


def test_a_missing_kubeconfig_is_refused_with_2_and_a_sentence_without_the_clients_seven_hundred_models():
    code = (
        "import atexit, sys; from island_operator.cli.main import main;"
        "names = lambda: [name for name in sys.modules if name.startswith('kubernetes.') and '.models.' in name];"
        "atexit.register(lambda: print(len(names()), 'island_operator.runtime.main' in sys.modules));"
        "sys.exit(main(['run', '--kubeconfig', '/nowhere', '--port', '0']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("island-operator: no cluster from /nowhere: no such file; ")
    assert done.stderr.count("\n") == 1
    models, running = done.stdout.split()
    assert (int(models) < 10, running) == (True, "True")


def test_sigterm_ends_it_also_while_it_still_starts():
    """The first process of a container has no default for it, only handlers: without one it would be ignored."""
    code = (
        "import os, signal, sys, types; from island_operator.cli.main import main;"
        "find = lambda name, *_: os.kill(os.getpid(), signal.SIGTERM) if name == 'kopf' else None;"
        "sys.meta_path.insert(0, types.SimpleNamespace(find_spec=find));"
        "sys.exit(main(['run', '--kubeconfig', '/nowhere', '--port', '0']))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("command", [[], ["run"], ["crd"]])
def test_help_shows_an_example(command, capsys):
    with pytest.raises(SystemExit):
        main([*command, "--help"])
    assert "\nexample" in capsys.readouterr().out


def test_help_loads_neither_kopf_nor_a_kubernetes_client():
    code = "import sys; from island_operator.cli.main import parser; parser(); print('kopf' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


async def test_kopf_only_watches_what_we_name_with_the_labels_filtered_by_the_server():
    fed, seen = [], []

    class Sink:
        def event(self, kind, obj, *, deleted):
            fed.append((kind, deleted))

    async def credentials():
        return Credentials("https://here", ca_path="/ca", token="t")

    registry = triggers.registry(Sink(), credentials, seen.append)
    handlers = registry._watching.get_all_handlers()
    assert len(handlers) == len(WATCHED)
    assert not registry._changing.get_all_handlers(), "no finalizers, no annotations"
    assert not registry._spawning.get_all_handlers(), "no timers, no daemons"
    for handler, kind in zip(handlers, WATCHED, strict=True):
        await handler.fn(event={"type": "DELETED" if kind == "Pod" else None, "object": {"metadata": {}}})
    assert fed == [(kind, kind == "Pod") for kind in WATCHED]
    assert seen == list(WATCHED)
    (login,) = registry._activities.get_all_handlers()
    info = await login.fn()
    assert (info.server, info.ca_path, info.token) == ("https://here", "/ca", "t")
    given = triggers.settings()
    assert given.scanning.disabled
    assert not given.posting.enabled
    for kind in CHILDREN:
        where = KINDS[kind]
        assert given.watching.label_selectors[where.group, where.version, where.plural] == "radix-islands.dev/instance"


async def test_what_kopf_leaves_to_the_collector_is_no_more_than_a_name():
    """Of each event its body, its patch and their views stay until a full collection: 1.3 MiB a rollout."""
    cache, meta = Cache(), {"name": "x", "namespace": "ns", "uid": "u", "resourceVersion": "1"}
    told = {"apiVersion": "v1", "kind": PARENT, "metadata": {**meta, "managedFields": [{}]}, "spec": {"a": 1}}

    class Sink:
        def event(self, kind, obj, *, deleted):
            cache.put(kind, obj)

    parent = next(
        handler
        for handler, kind in zip(
            triggers.registry(Sink(), None, str)._watching.get_all_handlers(), WATCHED, strict=True
        )
        if kind == PARENT
    )
    await parent.fn(event={"type": "ADDED", "object": told})
    assert told == {"apiVersion": "v1", "kind": PARENT, "metadata": meta}
    assert cache.parent(Key("ns", "x"))["spec"] == {"a": 1}


def test_kopf_copies_no_object_to_find_what_changed_in_it():
    """Its defaults took more than half of the operator's CPU time."""

    class Uncopied(dict):
        def __deepcopy__(self, _):
            raise AssertionError("copied")

    kept = triggers.settings().persistence
    body = Uncopied(metadata=Uncopied(labels=Uncopied(), annotations=Uncopied()), spec=Uncopied(a=Uncopied()))
    assert kept.diffbase_storage.fetch(body=body) is None
    essence = kept.diffbase_storage.build(body=body, extra_fields=set())
    assert kept.progress_storage.clear(essence=essence) == {}
    assert kept.progress_storage.clear(essence=body) is body


@pytest.mark.parametrize(("namespace", "scope"), [(None, {"clusterwide": True}), ("ns", {"namespaces": ["ns"]})])
async def test_row_32_kopf_runs_alone_and_asks_for_no_user_name(monkeypatch, namespace, scope):
    """A pod's uid is in no passwd file: kopf's own search for an identity would end the process there."""
    asked, order = {}, []

    async def spawn(**given):
        asked.update(given)
        return ["tasks"]

    async def run(tasks, *, ignored):
        order.append((tasks, asyncio.current_task() in ignored))

    monkeypatch.setattr(triggers.kopf, "spawn_tasks", spawn)
    monkeypatch.setattr(triggers.kopf, "run_tasks", run)
    await triggers.watch(None, namespace, lambda: order.append("started"))
    assert asked.pop("identity")
    assert asked.pop("standalone")
    assert {name: asked[name] for name in ("clusterwide", "namespaces") if name in asked} == scope
    assert order == ["started", (["tasks"], True)]


async def test_a_taken_port_is_one_sentence():
    async with health.serving(0, lambda: 0.0, str, bytes) as port:
        with pytest.raises(ValueError, match=rf"^--port {port} cannot be served \(.*\): give a free one$"):
            async with health.serving(port, lambda: 0.0, str, bytes):
                pass
