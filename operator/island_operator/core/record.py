"""What is kept of a gate when its pod is gone: a ConfigMap of the Job's name, owned by the Job, so that both live as
long as spec.rollout.historyLimit keeps them, and Kubernetes' garbage collector removes the one with the other.

Keys: `verdict.json` (as status.gate), `report.jsonl` (what the gate's log holds of JSON, an object a line), `log.txt`
(the other lines). The last two are the log's tail, and absent where the log could not be read or has none of it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from island_operator.core import gate as gates
from island_operator.core.model import Record
from island_operator.core.observe import leaving
from island_operator.core.state import dumped
from island_operator.core.text import escaped

if TYPE_CHECKING:
    from island_operator.core.model import Object
    from island_operator.core.state import Gate, State
    from island_operator.core.view import Pass

MOST_BYTES = 192 * 1024  # of log in one ConfigMap; the API server takes 1 MiB, etcd 1.5 MiB
LONGEST_LINE = 8192  # characters
LONGEST_REPORT = 128 * 1024  # of a line of JSON: the gate's whole report is one, of 15 to 40 KB


def noted(state: State, here: Pass) -> State:
    """With the names of the reports that are stored by now."""
    gate, regate = (_noted(g, here) for g in (state.gate, state.regate))
    return replace(state, gate=gate, regate=regate)


def _noted(gate: Gate | None, here: Pass) -> Gate | None:
    return replace(gate, report=gate.job) if gate and not gate.report and gate.job in here.snapshot.kept else gate


def wanted(state: State, here: Pass) -> tuple[Record, ...]:
    """Reports of gates that have ended and are not stored yet."""
    ended = (g for g in (state.gate, state.regate) if g and g.verdict and g.job_uid and not g.report)
    return tuple(record for gate in ended if (record := _record(gate, here)))


def _record(gate: Gate, here: Pass) -> Record | None:
    job = here.snapshot.child("Job", gate.job)
    if job is None or leaving(job) or not gates.owned(job, here.intent.uid):
        return None  # it goes at once with its Job: nothing could keep it
    pod, meta = gates.pod_of(job, here.snapshot), job["metadata"]
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": gate.job,
            "namespace": meta["namespace"],
            "labels": meta["labels"],
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": gate.job, "uid": meta["uid"]}],
        },
        "immutable": True,
        "data": {"verdict.json": json.dumps(dumped(gate), indent=1, sort_keys=True) + "\n"},
    }
    return Record(manifest, pod["metadata"]["name"] if pod else None)


def with_log(manifest: Object, log: str) -> Object:
    """The ConfigMap with as much of the log's end as fits. A log is foreign text: what does not print is escaped."""
    texts: dict[str, list[str]] = {"report.jsonl": [], "log.txt": []}
    room = MOST_BYTES
    for line in reversed(log.splitlines()):
        whole = line.startswith("{") and len(line) <= LONGEST_REPORT
        clean = escaped(line, LONGEST_REPORT if whole else LONGEST_LINE)
        room -= len(clean.encode()) + 1
        if room < 0:
            break
        texts["report.jsonl" if _is_object(clean) else "log.txt"].append(clean)
    told = {key: "\n".join(reversed(lines)) + "\n" for key, lines in texts.items() if lines}
    return {**manifest, "data": {**manifest["data"], **told}}


def _is_object(line: str) -> bool:
    try:
        return line.startswith("{") and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
