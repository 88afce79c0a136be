"""What is kept of a gate: a ConfigMap that lives and dies with its Job, bounded whatever the log says."""

import json

import pytest
from support.world import World, termination

from island_operator.api.status import Gate
from island_operator.core.record import LONGEST_LINE, LONGEST_REPORT, MOST_BYTES, with_log

MANIFEST = {"kind": "ConfigMap", "metadata": {"name": "x-gate-1"}, "data": {"verdict.json": "{}\n"}}


def gated(image="wrong:1"):
    """A World whose islands were gated; the last pass's plan."""
    world = World(islands__enabled=True, engine__image=image)
    return world.settle(), world.operate()


def test_a_report_is_wanted_with_the_verdict_of_the_status_and_owned_by_its_job():
    world, plan = gated()
    (record,) = plan.records
    (job,) = world.of("Job")
    assert record.manifest["metadata"]["ownerReferences"] == [
        {"apiVersion": "batch/v1", "kind": "Job", "name": job["metadata"]["name"], "uid": job["metadata"]["uid"]}
    ]
    assert record.name == job["metadata"]["name"]
    assert record.manifest["metadata"]["labels"] == job["metadata"]["labels"]
    kept = json.loads(record.manifest["data"]["verdict.json"])
    assert kept == world.status["gate"]
    assert Gate.model_validate(kept).verdict == "FAIL"
    assert record.pod in {p["metadata"]["name"] for p in world.pods("gate")}


def test_once_it_is_stored_the_status_names_it_and_it_is_wanted_no_more():
    world, plan = gated()
    world.kept = frozenset({plan.records[0].name})
    world.settle()
    assert world.status["gate"]["report"] == plan.records[0].name
    assert world.operate().records == ()
    world.kept = frozenset()  # a new process knows of none
    world.settle()
    assert world.operate().records == ()


def test_a_gate_that_still_runs_has_no_report():
    world = World(islands__enabled=True, engine__image="hangs:1").until("Gating")
    for _ in range(5):
        world.tick()
        assert world.operate().records == ()


def test_without_its_pod_the_verdict_is_kept_and_without_its_job_nothing():
    world, _ = gated("silent:1")
    for pod in world.pods("gate"):
        world.store.pop(("Pod", pod["metadata"]["name"]))
    (record,) = world.operate().records
    assert record.pod is None
    assert json.loads(record.manifest["data"]["verdict.json"])["reason"] == "NoReport"
    world.store.pop(("Job", record.name))
    assert world.operate().records == ()


def test_a_scheduled_gate_is_kept_too():
    world = World(islands__enabled=True).settle()
    first = world.status["gate"]["job"]
    world.edit(gate__schedule="1h")
    world.tick(3600)
    world.until("Stable")
    world.go(12)
    assert {r.name for r in world.operate().records} >= {first, world.status["regate"]["job"]}


def test_lines_of_json_go_apart_and_the_order_stays():
    log = 'gate 1 s\n{"a":1}\nnoise {"b":2}\n{"c":3}\n[1]\n"x"\n{broken\n'
    data = with_log(MANIFEST, log)["data"]
    assert data["report.jsonl"] == '{"a":1}\n{"c":3}\n'
    assert data["log.txt"] == 'gate 1 s\nnoise {"b":2}\n[1]\n"x"\n{broken\n'
    assert data["verdict.json"] == "{}\n"


@pytest.mark.parametrize(
    "log", ["x" * 5_000_000, "é" * 900_000, "line\n" * 900_000, '{"a":"' + "y" * 9_000_000 + '"}', "[" * 100_000]
)
def test_a_log_without_end_is_cut_to_its_last_lines(log):
    data = with_log(MANIFEST, log)["data"]
    assert sum(len(text.encode()) for text in data.values()) <= MOST_BYTES + 100
    assert all(len(line) <= LONGEST_LINE for line in data["log.txt"].splitlines())


def test_a_report_of_one_line_is_kept_whole_up_to_its_bound():
    whole = json.dumps({"schema": "radix-islands.dev/gate/v1", "classes": ["x" * 90] * 400}, separators=(",", ":"))
    assert len(whole) > LONGEST_LINE * 4
    assert with_log(MANIFEST, f"gate 1 s\n{whole}\n")["data"]["report.jsonl"] == whole + "\n"
    longer = json.dumps({"a": "x" * LONGEST_REPORT})
    data = with_log(MANIFEST, f"gate 1 s\n{longer}\n")["data"]
    assert "report.jsonl" not in data
    assert data["log.txt"].startswith("gate 1 s\n")


def test_what_does_not_print_is_escaped():
    data = with_log(MANIFEST, "a\x1b[31mred\x00\u202eevil\n")["data"]
    assert data["log.txt"] == "a\\x1b[31mred\\x00\\u202eevil\n"


def test_an_empty_log_adds_no_key():
    assert with_log(MANIFEST, "\n" * 0)["data"] == MANIFEST["data"]


def test_a_gate_report_of_a_megabyte_keeps_its_bounds():
    assert len(termination("FAIL", message="m" * 2**20)) > 2**20
    world, plan = gated("long:1")
    assert world.status["gate"]["verdict"] == "FAIL"
    assert len(json.dumps(world.status["gate"])) < 8192
    assert len(plan.records[0].manifest["data"]["verdict.json"]) < 8192
