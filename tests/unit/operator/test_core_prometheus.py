"""Queries as canary checks: an answer is one number or none, and without one a canary goes no step further."""

import json
from urllib.parse import parse_qs, urlsplit

import pytest
from support.world import World

from island_operator.api.status import Status
from island_operator.core.exposition import UnreadableError
from island_operator.core.prometheus import Answer, parse

QUERY = {"name": "errors", "query": 'sum(rate(errors{pod=~"$name-$canary-.*"}[5m])) / $stable_x', "max": "0.05"}
ASKED = {"address": "http://prometheus:9090/prom/", "queries": [QUERY]}
NO_ANSWER = "not an answer of Prometheus"
CHECKS = {"enabled": True, "minRequests": 50, "prometheus": ASKED}


def vector(*values):
    result = [{"metric": {}, "value": [1.0, value]} for value in values]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (vector("0.25"), 0.25),
        (vector("-1e-3"), -0.001),
        ('{"status":"success","data":{"resultType":"scalar","result":[1,"7"]}}', 7.0),
    ],
)
def test_one_number_is_an_answer(text, value):
    assert parse(text) == Answer(value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (vector(), "no series"),
        (vector("1", "2", "3"), "3 series instead of one"),
        (vector("NaN"), "nan is no number to compare"),
        (vector("+Inf"), "inf is no number to compare"),
        (vector("many"), NO_ANSWER),
        (vector(None), NO_ANSWER),
        ('{"status":"error","errorType":"bad_data","error":"a\\u001b[31mb"}', "bad_data: a\\x1b[31mb"),
        ('{"status":"success","data":{"resultType":"matrix","result":[1]}}', f"{NO_ANSWER} to an instant query"),
        ('{"status":"success","data":{"resultType":"vector","result":[{}]}}', NO_ANSWER),
        ('{"status":"success","data":{"resultType":"vector","result":["x"]}}', NO_ANSWER),
        ('{"status":"success"}', f"{NO_ANSWER} to an instant query"),
        ("[1]", f"{NO_ANSWER} to an instant query"),
        ("<html>", NO_ANSWER),
        ("", NO_ANSWER),
        ("[" * 100_000, NO_ANSWER),
    ],
)  # fmt: skip
def test_anything_else_is_none_and_says_why(text, why):
    with pytest.raises(UnreadableError) as told:
        parse(text)
    assert str(told.value) == why


def rolling(**changes):
    """A canary that holds its only step, its pause over; the question that it asks."""
    world = World(rollout__checks=CHECKS, rollout__deadline="10m", **changes).settle()
    assert world.operate().ask == (), "nothing rolls: nothing is asked"
    world.edit(engine__image="good:2")
    world.until("Canary")
    world.go(15)
    (question,) = world.operate().ask
    return world, question


def test_the_question_is_about_this_canary_and_this_stable():
    world, question = rolling()
    url = urlsplit(question.url)
    assert (url.netloc, url.path) == ("prometheus:9090", "/prom/api/v1/query")
    (asked,) = parse_qs(url.query)["query"]
    run = world.status["run"]
    assert asked == f'sum(rate(errors{{pod=~"x-{run["revision"]}-.*"}}[5m])) / $stable_x'
    world.edit(engine__image="good:3")
    world.until("Canary")
    world.operate()
    assert world.operate().ask[0].uid != question.uid


def test_without_an_answer_the_canary_waits_and_the_status_says_for_what():
    world, question = rolling()
    assert world.phase == "Canary"
    assert world.status["unanswered"] == [{"query": "errors", "reason": "not answered yet"}]
    world.answers = {question.uid: Answer(fault="no series")}
    world.operate()
    told = world.condition("Progressing")["message"]
    assert "query errors of spec.rollout.checks.prometheus has no number: no series" in told
    Status.model_validate(world.status)
    world.answers = {question.uid: Answer(0.01)}
    world.settle()
    assert world.condition("Ready")["status"] == "True"
    assert "unanswered" not in world.status


def test_without_an_answer_until_the_deadline_it_is_rejected_for_that():
    world, question = rolling()
    world.answers = {question.uid: Answer(fault="no answer within 5 s")}
    world.tick(500)
    world.operate()
    assert world.phase == "Canary"
    world.tick(200)
    world.settle()
    told = world.condition("RolledBack")
    assert (told["status"], told["reason"]) == ("True", "QueryUnanswered")
    assert "no progress for 600 s (spec.rollout.deadline): query errors" in told["message"]


def test_a_paused_canary_has_no_deadline_here_either():
    world, _ = rolling()
    world.annotate("radix-islands.dev/pause", "1")
    world.operate()
    world.tick(5000)
    for _ in range(5):
        world.operate()
    assert world.phase == "Canary"


@pytest.mark.parametrize(
    ("limit", "value", "told"),
    [
        ({"max": "0.05"}, 0.06, "query errors is 0.06, above spec.rollout.checks.prometheus.queries[errors].max 0.05"),
        ({"min": "-1"}, -1.5, "query errors is -1.5, below spec.rollout.checks.prometheus.queries[errors].min -1"),
    ],
)
def test_an_answer_beyond_its_limit_rolls_back(limit, value, told):
    query = {"name": "errors", "query": "x", **limit}
    checks = {**CHECKS, "prometheus": {**ASKED, "queries": [query]}}
    world = World(rollout__checks=checks).settle()
    world.edit(engine__image="good:2")
    world.until("Canary")
    world.operate()
    (question,) = world.operate().ask
    world.answers = {question.uid: Answer(value)}
    world.settle()
    assert world.condition("RolledBack")["reason"] == "CheckFailed"
    assert told in world.condition("RolledBack")["message"]


def test_the_kill_switch_asks_nobody():
    world = World(islands__enabled=True, rollout__checks=CHECKS, gate__enabled=False).settle()
    world.edit(islands__enabled=False)
    world.settle()
    assert world.condition("Ready")["status"] == "True"


def test_the_queries_are_pinned_with_the_run():
    world, question = rolling()
    world.edit(rollout__checks={"enabled": True, "minRequests": 50})
    world.operate()
    assert world.operate().ask == (question,)
