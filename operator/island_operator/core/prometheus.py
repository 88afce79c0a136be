"""Canary checks that ask a Prometheus: spec.rollout.checks.prometheus. Its answers are foreign text, like an engine's.

A query must come to one number. Whatever else comes (an error, no series, several, NaN) is no answer, and a canary goes
no step further without one: a check that was asked for and cannot be made must not let a revision through.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from island_operator.core.exposition import UnreadableError
from island_operator.core.model import Question
from island_operator.core.observe import Trouble
from island_operator.core.text import escaped

if TYPE_CHECKING:
    from island_operator.core.model import Object
    from island_operator.core.state import Run
    from island_operator.core.view import Pass

MOST_BYTES = 64 * 1024  # of one answer
STATUSES = {200, 400, 422, 503}  # with which Prometheus answers in JSON
FIELD = "spec.rollout.checks.prometheus"
_PLACES = re.compile(r"\$(canary|stable|name|namespace)\b")


@dataclass(frozen=True)
class Answer:
    """The last one to a query: a number, or why there is none."""

    value: float | None = None
    fault: str | None = None

    def missed(self, why: str) -> Answer:
        """Without a number."""
        return Answer(fault=why)


def parse(text: str) -> Answer:
    """Of an instant query (prometheus.io/docs/prometheus/latest/querying/api). UnreadableError: it is no number."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        raise UnreadableError("not an answer of Prometheus") from None
    body = body if isinstance(body, dict) else {}
    if body.get("status") == "error":
        raise UnreadableError(escaped(f"{body.get('errorType')}: {body.get('error')}", 200))
    data = body["data"] if isinstance(body.get("data"), dict) else {}
    result, kind = data.get("result"), data.get("resultType")
    if body.get("status") != "success" or kind not in {"vector", "scalar"} or not isinstance(result, list):
        raise UnreadableError("not an answer of Prometheus to an instant query")
    if kind == "vector" and len(result) != 1:
        raise UnreadableError(f"{len(result)} series instead of one" if result else "no series")
    return Answer(_number(result if kind == "scalar" else result[0]))


def _number(told: Any) -> float:
    """Of [time, "number"], or of a series that has it as its value."""
    try:
        value = float((told["value"] if isinstance(told, dict) else told)[1])
    except (TypeError, ValueError, KeyError, IndexError):
        raise UnreadableError("not an answer of Prometheus") from None
    if not math.isfinite(value):
        raise UnreadableError(f"{value} is no number to compare")
    return value


def questions(run: Run | None, here: Pass) -> tuple[Question, ...]:
    """What is to be asked for a rollout; $canary, $stable, $name and $namespace stand for this one's."""
    asked = (run.checks or {}).get("prometheus") if run and not run.fast else None
    if run is None or not asked:
        return ()
    meta = here.snapshot.parent["metadata"]
    places = {
        "canary": run.revision,
        "stable": run.previous or "",
        "name": meta["name"],
        "namespace": meta["namespace"],
    }
    return tuple(_question(asked["address"], query, places) for query in asked["queries"])


def _question(address: str, query: Object, places: dict[str, str]) -> Question:
    filled = _PLACES.sub(lambda place: places[place[1]], query["query"])
    return Question(query["name"], f"{address.rstrip('/')}/api/v1/query?{urlencode({'query': filled})}")


def failed(run: Run, here: Pass) -> Trouble | None:
    """The first query whose answer is beyond its limits."""
    limits = {query["name"]: query for query in ((run.checks or {}).get("prometheus") or {}).get("queries", ())}
    for question in questions(run, here):
        answer, limit = here.snapshot.answers.get(question.uid), limits[question.name]
        if answer is None or answer.value is None:
            continue
        for bound, beyond, word in (("max", answer.value.__gt__, "above"), ("min", answer.value.__lt__, "below")):
            if limit.get(bound) is not None and beyond(float(limit[bound])):
                told = f"query {question.name} is {answer.value:.6g}, {word} {FIELD}.queries[{question.name}].{bound}"
                return Trouble("CheckFailed", f"{told} {limit[bound]}", fatal=True)
    return None


def unanswered(run: Run | None, here: Pass) -> dict[str, str]:
    """Why there is no number, by the query's name."""
    known = (
        (q.name, here.snapshot.answers.get(q.uid) or Answer(fault="not answered yet")) for q in questions(run, here)
    )
    return {name: answer.fault for name, answer in known if answer.fault}
