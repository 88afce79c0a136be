"""What the other commands say, from snapshots of a small world."""

import asyncio
import io
import json
import os
import re
import subprocess
import sys
from dataclasses import asdict
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.text import Text
from support.world import DIVERGENCE, World, paused_canary

from island_engine.gate.report import SCHEMA, Summary, Verdict
from island_operator.cli.kubectl import app, diff, gate, history, status, text, tree, verbs, view
from island_operator.cli.kubectl.access import Access, Refusal
from island_operator.cli.kubectl.model import plain
from island_operator.cluster.fake import FakeCluster
from island_operator.cluster.protocol import ApiError, Listing, Unreachable
from island_operator.core import state
from island_operator.core.verbs import VERBS


def plains(lines):
    return [line.plain for line in lines]


@pytest.fixture(scope="module")
def canary():
    """Stock serves, islands are a canary, and one image was refused before."""
    return paused_canary()


def hashes(world):
    known = state.read(world.status)
    return known.active, known.run.revision, known.rejected[-1].revision


# --- how things are written -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(-5, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (330, "5m30s"), (600, "10m"), (10_799, "179m"), (10_800, "3h"),
     (18_300, "5h5m"), (28_800, "8h"), (172_799, "47h"), (172_800, "2d")],
)  # fmt: skip
def test_ages_are_written_as_kubectl_does(seconds, told):
    assert text.duration(seconds) == told


def test_columns_are_as_wide_as_the_widest_cell_and_icons_count_as_one():
    lines = text.columns([["NAME", "STATUS"], ["a", Text("✔ Running")], ["longer", ""]])
    assert plains(lines) == ["NAME     STATUS", "a        ✔ Running", "longer"]


def colours(seen, now, **env):
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=200, soft_wrap=True, highlight=False, _environ=env)
    for line in tree.render(seen, now):
        console.print(line)
    return "\x1b[3" in out.getvalue() or "\x1b[9" in out.getvalue()


def test_no_color_and_a_pipe_have_no_colours(canary, capsys):
    seen = view.of(canary.snapshot(), canary.now)
    assert colours(seen, canary.now)
    assert not colours(seen, canary.now, NO_COLOR="1")
    text.show(tree.render(seen, canary.now))
    assert "\x1b" not in capsys.readouterr().out


def test_json_of_a_view_is_plain_and_says_what_the_tree_says(canary):
    told = json.loads(json.dumps(plain(view.of(canary.snapshot(), canary.now))))
    assert (told["phase"], told["health"], told["reason"]) == ("Canary", "Paused", "Paused")
    assert [r["roles"] for r in told["revisions"]][:2] == [["canary"], ["stable"]]
    assert told["revisions"][0]["pair"] == {
        "islands": True, "ratio": "0.15", "maxTotalTokens": 19968, "maxRunningRequests": 8,
    }  # fmt: skip
    assert [hint["command"] for hint in told["hints"]] == [
        "kubectl island resume x", "kubectl island promote x", "kubectl island abort x",
    ]  # fmt: skip


# --- history ----------------------------------------------------------------------------------------------------------


def test_history_tells_every_revision_and_what_became_of_it(canary):
    stable, new, refused = hashes(canary)
    lines = plains(history.table(canary.snapshot(), canary.now))
    assert lines[0].split() == ["REVISION", "ROLE", "ISLANDS", "RATIO", "TOKENS", "GATE", "PROMOTED", "REJECTED"]
    by_name = {line.split()[0]: line.split() for line in lines[1:4]}
    assert by_name[new][1:6] == ["canary", "on", "0.15", "19,968", "✔"]
    assert by_name[stable][1:5] == ["stable", "off", "0.4", "9,984"]
    assert by_name[refused][1:3] == ["rejected", "GateFailed,"]
    assert lines[-1].endswith(
        "pause: the rollout of revision " + new + " is paused in Canary; resume, promote or abort it"
    )


def test_history_of_an_object_that_nobody_has_seen():
    world = World()
    assert plains(history.table(world.snapshot(), world.now)) == ["No revision yet."]


# --- diff -------------------------------------------------------------------------------------------------------------


def test_a_diff_begins_with_the_pair_and_names_both_revisions(canary):
    stable, new, _ = hashes(canary)
    snapshot = canary.snapshot()
    lines = plains(diff.unified(diff.find(snapshot, "stable"), diff.find(snapshot, "canary")))
    assert lines[:4] == [
        "- islands off, ratio 0.4, 9,984 tokens, at most 8 running",
        "+ islands on, ratio 0.15, 19,968 tokens, at most 8 running",
        f"--- revision {stable}",
        f"+++ revision {new}",
    ]
    assert [line for line in lines[4:] if line[0] in "+-"] == ["-  enabled: false", "+  enabled: true"]


def test_a_revision_is_found_by_its_beginning_and_by_what_it_is(canary):
    stable, new, refused = hashes(canary)
    snapshot = canary.snapshot()
    assert diff.find(snapshot, stable[:4]).hash == stable
    assert diff.find(snapshot, "desired").hash == new
    assert diff.unified(diff.find(snapshot, new), diff.find(snapshot, "canary")) == []
    with pytest.raises(Refusal, match=rf"there is no revision abc123: use one of .*{stable}.*, or stable, canary"):
        diff.find(snapshot, "abc123")
    with pytest.raises(Refusal, match=f"revision {refused} is only remembered by its name"):
        diff.find(snapshot, refused)


def test_a_role_that_nobody_has_is_refused_with_what_there_is():
    world = World().settle()
    with pytest.raises(Refusal, match="x has no canary revision now: it has "):
        diff.find(world.snapshot(), "canary")


def test_a_revision_alone_is_compared_with_what_serves_and_without_any_the_canary_is(canary):
    stable, new, _ = hashes(canary)
    snapshot = canary.snapshot()
    for said in ((None, None), (new, None), ("canary", None), (stable, new)):
        assert [one.hash for one in diff.pair(snapshot, *said)] == [stable, new]
    with pytest.raises(Refusal, match=f"nothing to compare: revision {stable} is what serves; name another one"):
        diff.pair(snapshot, "stable", None)


def test_nothing_to_compare_is_said():
    world = World().settle()
    with pytest.raises(
        Refusal, match=r"nothing to compare: revision .*, the one that the spec asks for, is what serves"
    ):
        diff.pair(world.snapshot(), None, None)
    with pytest.raises(Refusal, match="x has no stable revision now: it has "):
        diff.pair(World().snapshot(), None, None)


def test_changes_for_programs_are_leaves_with_their_paths():
    old, new = {"a": {"b": 1, "c": [1]}, "d": 2}, {"a": {"b": 1, "c": [1, 2]}, "e": {"f": 3}}
    found = list(diff.differences(old, new))
    assert found == [("a.c", [1], [1, 2]), ("d", 2, None), ("e", None, {"f": 3})]


# --- gate -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def failed():
    world = World().settle()
    world.edit(engine__image="wrong:1", islands__enabled=True)
    return world.settle()


def test_the_gate_in_words_has_verdict_evidence_and_where_the_answers_part(failed):
    lines = plains(gate.summary(gate.newest(failed.parent), failed.now))
    assert lines[0] == "Verdict:      ✖ FAIL"
    assert "Compared:     12 serves, 340 tokens in 61s" in lines
    assert [line.split(maxsplit=1)[-1] for line in lines if line.startswith(("Divergence", "   "))] == [
        f"{key} {value}" if index == 0 else str(value)
        for index, (key, value) in enumerate(state.read(failed.status).gate.divergence.items())
    ]
    assert DIVERGENCE["probe"] in "".join(lines)


def test_the_page_shows_verdict_and_log_and_trusts_neither(failed):
    found = gate.newest(failed.parent)
    kept = {
        "verdict.json": json.dumps(
            {"verdict": "FAIL", "message": "<script>alert(1)</script>", "divergence": DIVERGENCE}
        ),
        "log.txt": "off-A: boot\n<b>bold</b>\n",
    }
    page = gate.as_page(found, kept)
    assert "<h1 style='background:#c1121f'>FAIL: Told</h1>" in page
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    assert "not kept" in gate.as_page(found, {})


def test_the_gates_own_page_is_shown_where_its_log_held_the_report(failed):
    summary = asdict(Summary(Verdict.FAIL, "FirstDivergence", "<script>differs</script>", seconds=61.0))
    times = {"started": failed.now, "seconds": 61.0, "arms": {}, "pools": {}, "classes": [], "counters": {}}
    report = {
        "schema": SCHEMA, "summary": summary, "self_test": False, "profile": "<script>", "seed": "<script>",
        "strict": False, "batch_invariant": True, "mutations": [], "facts": {}, "classes": [], "arms": [],
        "times": times,
    }  # fmt: skip
    page = gate.as_page(gate.newest(failed.parent), {"report.jsonl": json.dumps({"a": 1}) + "\n" + json.dumps(report)})
    assert "Islands change an answer" in page
    assert page.index("default-src 'none'") < page.index("<title>"), "nothing in it runs"
    broken = json.dumps({"schema": SCHEMA, "summary": {}})
    assert "<h2>Log</h2>" in gate.as_page(gate.newest(failed.parent), {"report.jsonl": broken})


def test_what_passed_before_is_said_to_where_the_newest_attempt_was_of_another_revision():
    world = World(islands__enabled=True).settle()
    good = world.status["revisions"]["active"]
    assert gate.proved(world.parent, gate.newest(world.parent)) == []
    world.edit(engine__image="wrong:1")
    world.settle()
    assert gate.proved(world.parent, gate.newest(world.parent)) == [], "the failed one is what the spec asks for"
    world.edit(engine__image="good:1")
    world.settle()
    newest = gate.newest(world.parent)
    assert (newest.verdict, newest.revision == good) == ("FAIL", False)
    (told,) = plains(gate.proved(world.parent, newest))
    assert f"revision {good} passed its gate before and is not asked again" in told


def test_what_was_never_gated_has_no_gate():
    assert gate.newest(World().settle().parent) is None


class Turning(FakeCluster):
    """A world that goes on whenever somebody has looked at all of it."""

    def __init__(self, world, turn):
        super().__init__()
        self.world, self.turn, self.looks, self.said = world, turn, 0, ""

    async def get(self, kind, namespace, name):
        self.turn(self)
        self.looks += 1
        return self.world.snapshot().parent

    async def list(self, kind, namespace=None, *, instance=None):
        return Listing(tuple(self.world.of(kind)), "1")

    async def log(self, namespace, pod, container):
        (found,) = [p for p in self.world.pods("gate") if p["metadata"]["name"] == pod]
        state_ = found["status"]["containerStatuses"][0]["state"]
        if "waiting" in state_:
            raise ApiError(400, "is waiting to start")
        self.said += f"line {self.looks}\n"
        return self.said


def followed(world, turn, monkeypatch):
    """What is said of its gate on standard output, while `turn` is called before each look."""
    monkeypatch.setattr(gate, "EVERY", 0)
    monkeypatch.setattr(gate, "now", lambda: world.now)

    async def read():
        return [part async for part in gate.follow(Access(Turning(world, turn), "default"), "x")]

    return asyncio.run(read())


def gated(image):
    world = World().settle()
    world.edit(engine__image=image, islands__enabled=True)
    world.until("Gating")
    return world


def test_a_log_is_followed_until_its_pod_has_ended(monkeypatch, capsys):
    parts = followed(gated("good:1"), lambda cluster: cluster.world.go(1), monkeypatch)
    assert "".join(parts).splitlines() == [f"line {n}" for n in range(int(parts[0].split()[1]), 10)][: len(parts)]
    assert len(parts) > 1
    told = capsys.readouterr().err.splitlines()
    assert told
    assert all(line.startswith("kubectl island: waits for ") for line in told)


def test_what_keeps_a_gate_from_starting_is_said_once_and_its_log_when_it_is_put_right(monkeypatch, capsys):
    def turn(cluster):
        if cluster.looks == 9:
            for pod in cluster.world.pods("gate"):  # the registry has it now
                pod["spec"]["containers"][0]["image"] = "good:1"
                pod["status"]["containerStatuses"] = [{"name": "engine", "restartCount": 0, "state": {"running": {}}}]
        cluster.world.go(1)

    parts = followed(gated("nopull:1"), turn, monkeypatch)
    told = capsys.readouterr().err
    assert told.count("kubectl island: ImagePullBackOff: pod x-gate-") == 1
    assert "image nopull:1: Back-off pulling image" in told
    assert parts[0].startswith("line ")


def test_the_gate_of_a_spec_that_was_put_right_is_followed_next(monkeypatch, capsys):
    def turn(cluster):
        if cluster.looks == 6:
            cluster.world.edit(engine__image="good:1")
        cluster.world.go(1)

    assert followed(gated("nopull:1"), turn, monkeypatch)
    told = capsys.readouterr().err
    assert "ImagePullBackOff" in told
    assert len(set(re.findall("x-gate-[0-9a-f]{10}", told))) == 2


def test_a_gate_that_ends_without_a_log_says_how(monkeypatch, capsys):
    def turn(cluster):
        if cluster.looks == 5:
            cluster.world.annotate("radix-islands.dev/abort", "1")
        cluster.world.go(1)

    assert followed(gated("nopull:1"), turn, monkeypatch) == []
    assert "ended without a log: INCONCLUSIVE, " in capsys.readouterr().err.splitlines()[-1]


def test_a_gate_that_was_aborted_is_history_and_not_in_the_tree():
    world = gated("hangs:1")
    world.go(3)
    revision = world.status["gate"]["revision"]
    world.annotate("radix-islands.dev/abort", "1")
    world.settle()
    aborted = "\n".join(plains(tree.render(view.of(world.snapshot(), world.now), world.now)))
    assert "x-gate-" not in aborted
    assert "Rejected (Aborted)" in aborted
    world.edit(engine__image="good:1", islands__enabled=False)
    world.settle()
    assert revision not in "\n".join(plains(tree.render(view.of(world.snapshot(), world.now), world.now)))
    assert revision in "\n".join(plains(history.table(world.snapshot(), world.now)))


def test_history_tells_of_a_revision_that_is_in_its_gate():
    world = gated("hangs:1")
    world.go(3)
    first = history.told(world.snapshot())["revisions"][0]
    assert first["roles"] == ["gating"]
    assert first["verdict"] == "RUNNING"
    assert (first["pair"]["islands"], first["pair"]["ratio"]) == (True, "0.15")
    row = plains(history.table(world.snapshot(), world.now))[1]
    assert "gating" in row
    assert "◌ RUNNING" in row


def test_a_log_for_a_person_leaves_out_the_report_for_machines():
    assert (
        gate.spoken('gate 1 s  off-A\n{"schema":"x"}\nPASS Equal: {"all"}\n')
        == 'gate 1 s  off-A\nPASS Equal: {"all"}\n'
    )


# --- verbs ------------------------------------------------------------------------------------------------------------


class Answering(FakeCluster):
    """An operator is there: it answers an annotation with `outcome`."""

    def __init__(self, outcome):
        super().__init__()
        self.outcome = outcome
        meta = {"namespace": "default", "name": "x"}
        self.put({"kind": "InferenceService", "metadata": meta, "spec": {}, "status": {}})

    async def patch(self, kind, namespace, name, body):
        done = await super().patch(kind, namespace, name, body)
        ((note, value),) = body["metadata"]["annotations"].items()
        verb = {"name": note.removeprefix("radix-islands.dev/"), "value": value, "at": "2026-01-01T00:00:00Z"}
        if self.outcome:
            self.objects[kind, namespace, name]["status"] = {"verbs": [{**verb, "outcome": self.outcome}]}
        return done


def say(outcome, **flags):
    args = SimpleNamespace(name="x", verb="pause", timeout=0.01, json=False, **flags)
    return asyncio.run(verbs.run(args, Access(Answering(outcome), "default")))


def test_a_verb_says_what_came_of_it(capsys):
    assert say("the rollout is paused") == 0
    assert capsys.readouterr().out == "InferenceService x: the rollout is paused\n"
    assert say("pause was refused: no rollout is in progress") == 1
    assert capsys.readouterr().err == "kubectl island: pause was refused: no rollout is in progress\n"


def test_a_verb_that_nobody_takes_ends_with_how_to_take_it_back():
    with pytest.raises(Refusal, match=r"annotate iisvc x -n default radix-islands.dev/pause-$") as refusal:
        say(None)
    assert refusal.value.code == 1


@pytest.mark.parametrize("left", [{"radix-islands.dev/pause": "another"}, {}], ids=["not taken yet", "taken"])
@pytest.mark.parametrize("everywhere", [False, True])
def test_a_verb_that_another_asking_overtook_is_not_waited_for_and_no_operator_is_blamed(left, everywhere):
    class Overtaken(Answering):
        async def patch(self, kind, namespace, name, body):
            done = await super().patch(kind, namespace, name, body)
            self.objects[kind, namespace, name]["metadata"]["annotations"] = left
            return done

    args = SimpleNamespace(name="x", verb="pause", timeout=30, json=False)
    with pytest.raises(Refusal, match=r"asked for once more at the same time, .* kubectl island history x") as refusal:
        asyncio.run(verbs.run(args, Access(Overtaken(None), "default", everywhere)))
    assert refusal.value.code == 1


# --- watching ---------------------------------------------------------------------------------------------------------


def test_what_is_printed_again_is_what_has_changed_but_for_the_clock(canary):
    snapshot = canary.snapshot()
    earlier, later = view.of(snapshot, canary.now), view.of(snapshot, "2026-01-02T00:00:00Z")
    assert status.unchanged(earlier, later)
    snapshot.parent["status"]["readyReplicas"] = 0
    assert not status.unchanged(earlier, view.of(snapshot, canary.now))


async def test_a_watch_outlives_an_api_server_that_restarts(canary, monkeypatch):
    seen = view.of(canary.snapshot(), canary.now)
    answers = [seen, Unreachable("refused"), ApiError(503, "etcd has no leader"), seen, ApiError(403, "forbidden")]

    async def look(_access, _name):
        if isinstance(answer := answers.pop(0), Exception):
            raise answer
        return answer

    monkeypatch.setattr(status, "look", look)
    monkeypatch.setattr(status, "EVERY", 0)
    views = status._views(None, "x")
    assert [await anext(views) == seen for _ in range(4)] == [True, False, False, True]
    with pytest.raises(ApiError, match="forbidden"):
        await anext(views)


# --- the command line -------------------------------------------------------------------------------------------------

COMMANDS = ["status", "history", "plan", "diff", "gate", "doctor", *app.VERBS]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example_that_it_takes(command, capsys):
    with pytest.raises(SystemExit) as done:
        app.parser(command).parse_args([command, "--help"])
    assert done.value.code == 0
    helped = capsys.readouterr().out
    example = helped.strip().splitlines()[-1].removeprefix("  kubectl island ")
    assert app.parser(command).parse_args(example.split()).command == command


def test_the_verbs_are_those_of_the_operator():
    assert set(app.VERBS) == set(VERBS)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("gate x --follow", "--follow follows a log: add --logs"),
        ("gate x --output f", "add --logs or --report"),
        ("gate x --logs --json", "leave out --logs and --report"),
        ("pause x --timeout 0", "'0' is not a number of seconds: use 1 or more"),
        ("pause", "the following arguments are required: NAME"),
        ("nothing", "invalid choice: 'nothing'"),
        ("status -n a -A", "not allowed with argument"),
        (
            "status x --kubeconfig /nowhere",
            "no cluster from /nowhere: no such file; give a kubeconfig with --kubeconfig",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(words, says, capsys):
    try:
        code = app.main(words.split())
    except SystemExit as done:
        code = done.code
    assert code == 2
    assert says in capsys.readouterr().err.splitlines()[-1]


def test_without_a_command_it_says_what_there_is(capsys):
    assert app.main([]) == 0
    assert "kubectl island doctor" in capsys.readouterr().out
    assert app.main(["--version"]) == 0
    assert capsys.readouterr().out[0].isdigit()


def test_ctrl_c_is_quiet(monkeypatch, capsys):
    def interrupted(coroutine):
        coroutine.close()
        raise KeyboardInterrupt

    monkeypatch.setattr(app.asyncio, "run", interrupted)
    assert app.main(["status"]) == 130
    assert capsys.readouterr() == ("", "")


def test_help_needs_no_kubernetes():
    code = "import sys; from island_operator.cli.kubectl import main; main([]); print('kubernetes' in sys.modules)"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.splitlines()[-1] == "False"
