"""Whatever an API server returns of an InferenceService, no command ends in a traceback; what is left out is said."""

import asyncio
import contextlib
import copy
import io
import json

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.damage import JSON, damaged
from support.world import World, paused_canary

from island_operator.api.status import Status
from island_operator.cli.kubectl import app, gate, view
from island_operator.cli.kubectl.access import Access, Refusal
from island_operator.cli.kubectl.legible import legible
from island_operator.cluster.fake import FakeCluster
from island_operator.core import state

NOW = "2026-01-01T00:10:00Z"
COMMANDS = [
    *("status", "status x", "status x --json", "history x", "history x --json", "gate x", "gate x --json"),
    *("gate x --report", "gate x --logs", "diff x stable desired", "diff x canary stable --json", "diff x abc def"),
    *("plan x --isl 1000 --osl 100", "pause x"),
]


class Shelf(FakeCluster):
    """One InferenceService and its children, as they are on it."""

    def __init__(self, parent, children=()):
        super().__init__()
        self.parent = parent
        for child in children:
            self.put(child)
        self.put(
            {"kind": "ConfigMap", "metadata": {"name": "kept", "namespace": "default"}, "data": {"verdict.json": "["}}
        )

    async def list(self, kind, namespace=None, *, instance=None):
        found = await super().list(kind, namespace)
        return found if kind != "InferenceService" else type(found)((copy.deepcopy(self.parent),), 1)

    async def get(self, kind, namespace, name):
        return copy.deepcopy(self.parent) if kind == "InferenceService" else await super().get(kind, namespace, name)

    async def patch(self, kind, namespace, name, body):
        return self.parent

    async def log(self, *_where):
        return "gate 1 s"

    async def request(self, *_args, **_more):
        return b"gate 1 s"


def said(words, parent, others=()):
    """What a command prints and leaves unread; a Refusal is an answer too."""
    args = app.parser(words.split()[0]).parse_args(words.split())
    args.timeout = 0.0
    access = Access(Shelf(parent, others), "default")
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            asyncio.run(app._chosen(args)(args, access))
        except Refusal as refusal:
            print(refusal)
    return out.getvalue(), [*access.unread]


def worlds():
    gating = World().settle()
    gating.edit(engine__image="hangs:1", islands__enabled=True)
    gating.until("Gating")
    gating.operate()
    return [paused_canary(), gating, World()]


WORLDS = worlds()


@st.composite
def objects(draw, root="status"):
    """An InferenceService of some moment (of which world), with a part of it that is something else, or is gone."""
    moment = draw(st.integers(0, len(WORLDS) - 1))
    parent = copy.deepcopy(WORLDS[moment].parent)
    parent.setdefault("status", {})
    return draw(damaged(parent, (root,))), moment


def children(world):
    return tuple(world.store.values())


FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@FEW
@given(case=objects(), words=st.sampled_from(COMMANDS))
def test_no_status_makes_a_traceback(case, words):
    said(words, case[0], children(WORLDS[case[1]]))


@FEW
@given(case=objects(root="spec"), words=st.sampled_from(COMMANDS))
def test_no_spec_makes_a_traceback(case, words):
    said(words, case[0], children(WORLDS[case[1]]))


@settings(FEW, max_examples=200)
@given(status=st.one_of(JSON, objects().map(lambda case: case[0]["status"])))
@example(status={"observed_generation": "x"})
@example(status={"run": {"step": None}})
@example(status={"revisions": {"history": [{}, {"revision": 1}, 3]}})
def test_what_is_left_fits_the_schema_and_is_readable(status):
    parent, unread = legible({**World().parent, "status": status})
    Status.model_validate(parent["status"], strict=True)
    state.written(state.read(parent["status"]))
    assert all(path == "status" or path.startswith("status.") for path in unread)


@pytest.mark.parametrize("world", WORLDS[:2])
def test_what_our_own_operator_wrote_is_read_as_it_is(world):
    parent, unread = legible(world.parent)
    assert unread == ()
    assert parent["status"] == world.status
    assert view.of(world.snapshot(), world.now).phase == world.phase


def test_a_newer_releases_fields_are_no_fault_and_a_phase_it_invented_is_shown():
    world = WORLDS[0]
    parent = copy.deepcopy(world.parent)
    parent["status"]["later"] = {"a": 1}
    parent["status"]["run"]["phase"] = "Warming"
    told, unread = said("status x", parent, children(world))
    assert unread == []
    assert "Warming" in told


def test_what_was_left_out_is_named_after_the_rest(monkeypatch, capsys):
    parent = copy.deepcopy(WORLDS[1].parent)
    parent["status"]["gate"]["startedAt"] = "yesterday"
    del parent["status"]["run"]["phase"]
    told, unread = said("status x", parent)
    assert "x" in told
    assert unread == [
        "of x this release cannot read status.run, status.gate.startedAt, status.gate, and leaves it out: kubectl "
        "island doctor says whether another release is installed"
    ]

    class Connected(Shelf):
        host, namespace = "https://api.example", "default"

        async def close(self):
            pass

    async def connect(*_args, **_more):
        return Connected(parent)

    monkeypatch.setattr("island_operator.cli.kubectl.access.KubernetesCluster.connect", connect)
    assert app.main(["status", "x"]) == 0
    assert capsys.readouterr().err == f"kubectl island: {unread[0]}\n"


def test_no_terminal_takes_orders_from_a_status():
    parent = copy.deepcopy(WORLDS[0].parent)
    parent["status"]["conditions"][0]["message"] = "\x1b]0;mine\x07 \x1b[2J"
    parent["status"]["gate"]["message"] = "\x1b[31mred"
    for words in COMMANDS:
        assert "\x1b" not in said(words, parent)[0]


@pytest.mark.parametrize("kept", ["[", "[1]", "3", '{"a": {"b": [1]}}', "null"])
def test_a_report_of_any_kind_makes_a_page(kept):
    found = gate.newest(WORLDS[0].parent)
    page = gate.as_page(found, {"verdict.json": kept, "report.jsonl": json.dumps({"schema": 1})})
    assert "<h2>Log</h2>" in page
