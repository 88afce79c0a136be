"""`kubectl island gate NAME`: what the newest gate says, its log, or its report as a page."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from html import escape as quoted
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from island_engine.gate import page
from island_engine.gate.pictures import VERDICT_COLORS
from island_engine.gate.report import SCHEMA, Verdict
from island_operator.cli.kubectl import tree, view
from island_operator.cli.kubectl.access import Refusal
from island_operator.cli.kubectl.legible import UNLIKE
from island_operator.cli.kubectl.status import now
from island_operator.cli.kubectl.text import age, duration, labelled, show, show_json
from island_operator.cluster.protocol import ApiError
from island_operator.core import state
from island_operator.core.gate import CONTAINER, owned, pod_of
from island_operator.core.observe import ended, placed, trouble

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Iterator

    from rich.text import Text

    from island_operator.cli.kubectl.access import Access
    from island_operator.core.model import Object, Snapshot

LABEL = 14  # width of the names
CHARSET = "<meta charset='utf-8'>"
INERT = "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src 'unsafe-inline'\">"
EVERY = 1.0  # seconds between two looks at a log that is followed


async def run(args: argparse.Namespace, access: Access) -> int:
    """Exit code 0; Refusal where there is no gate, no log or no report."""
    snapshot = await access.snapshot(args.name)
    gate = newest(snapshot.parent)
    if gate is None:
        raise Refusal(f"{args.name} was never gated: islands are gated before they serve, the stock half never is")
    if args.logs:
        await _logs(args, access, snapshot, gate)
    elif args.report:
        text = as_page(gate, await _kept(access, snapshot, gate))
        with _opened(args.output) as file:
            file.write(text)
    elif args.json:
        show_json(state.dumped(gate))
    else:
        show([*proved(snapshot.parent, gate), *summary(gate, now())])
    return 0


def proved(parent: Object, gate: state.Gate) -> list[Text]:
    """What is wanted or on its way needs no gate, while the newest attempt was about another revision."""
    known = state.read(parent.get("status") or {})
    wanted = known.known(known.run.revision if known.run else known.desired)
    if wanted is None or wanted.revision == gate.revision or wanted.verdict != Verdict.PASS:
        return []
    told = f"revision {wanted.revision} passed its gate before and is not asked again; below is another's"
    return [_line("Proved", told)]


def newest(parent: Object) -> state.Gate | None:
    """The newest attempt, scheduled ones included."""
    known = state.read(parent.get("status") or {})
    return max((g for g in (known.gate, known.regate) if g), key=lambda g: g.attempt, default=None)


def summary(gate: state.Gate, moment: str) -> list[Text]:
    """The verdict in words."""
    verdict = gate.verdict or "RUNNING"
    lines = [
        _line("Verdict", tree.marked(tree.VERDICTS.get(verdict, tree.MOVING), verdict)),
        _line("Revision", gate.revision),
        _line("Job", f"{gate.job}, begun {age(gate.started_at, moment)} ago"),
    ]
    if gate.reason:
        lines.append(_line("Reason", gate.reason))
    if gate.message:
        lines.append(_line("Message", gate.message))
    if gate.probes:
        took = f" in {duration(gate.seconds)}" if gate.seconds else ""
        lines.append(_line("Compared", f"{gate.probes:,} serves, {gate.tokens or 0:,} tokens{took}"))
    if gate.fingerprint:
        lines.append(_line("Fingerprint", gate.fingerprint))
    for index, (name, value) in enumerate((gate.divergence or {}).items()):
        lines.append(_line("Divergence" if index == 0 else "", f"{name} {value}"))
    return lines


def _line(name: str, told: Text | str) -> Text:
    return labelled(name, told, LABEL)


# --- the log ----------------------------------------------------------------------------------------------------------


async def _logs(args: argparse.Namespace, access: Access, snapshot: Snapshot, gate: state.Gate) -> None:
    """From the pod while it is there, else what the operator kept of it."""
    pod = _pod(snapshot, gate)
    if args.follow and (pod or not gate.verdict):
        with _opened(args.output) as file:
            async for part in follow(access, args.name):
                file.write(spoken(part))
                file.flush()
        return
    if pod:
        text = spoken(await access.cluster.log(pod["metadata"]["namespace"], pod["metadata"]["name"], CONTAINER))
    else:
        text = (await _kept(access, snapshot, gate)).get("log.txt", "")
    with _opened(args.output) as file:
        file.write(text)


def spoken(log: str) -> str:
    """Without the report that a gate's log ends with, in one line for machines."""
    return "".join(line for line in log.splitlines(keepends=True) if not line.startswith('{"'))


def _pod(snapshot: Snapshot, gate: state.Gate) -> Object | None:
    job = snapshot.child("Job", gate.job)
    uid = str(snapshot.parent["metadata"]["uid"])
    return pod_of(job, snapshot) if job and owned(job, uid) else None


async def follow(access: Access, name: str) -> AsyncIterator[str]:
    """What the newest gate's container says, as it says it, until the gate has ended. Asked for again and again: a gate
    says a line every ten seconds, and a connection that breaks costs nothing. What keeps it from starting is said on
    standard error, each thing once; a gate that never said anything gives way to the one that follows it.
    """
    said, told, job = "", set[str](), ""
    while True:
        snapshot = await access.snapshot(name)
        gate = newest(snapshot.parent)
        if gate is None or (said and gate.job != job):
            return
        job, pod = gate.job, _pod(snapshot, gate)
        now_said = await _log(access, pod) if pod and placed(pod) else ""
        if len(now_said) > len(said):
            yield now_said.removeprefix(said)
            said = now_said
        over = ended(pod) if pod else bool(gate.verdict)
        if not said and (waits := _waits(snapshot, gate, pod, over=over)) not in told:
            sys.stderr.write(f"kubectl island: {waits}\n")
            told.add(waits)
        if over:
            return
        await asyncio.sleep(EVERY)


async def _log(access: Access, pod: Object) -> str:
    try:
        return await access.cluster.log(pod["metadata"]["namespace"], pod["metadata"]["name"], CONTAINER)
    except ApiError as error:
        if error.status != 400:  # its container has not started yet
            raise
        return ""


def _waits(snapshot: Snapshot, gate: state.Gate, pod: Object | None, *, over: bool) -> str:
    """Why a gate says nothing."""
    if over:
        return (
            f"the gate of revision {gate.revision} ended without a log: {gate.verdict or 'no verdict'}, {gate.message}"
        )
    if pod is None:
        return f"waits for the pod of Job {gate.job}: {gate.message or 'the Job is about to start'}"
    ill = trouble(pod, now(), snapshot)
    return f"{view.pod_status(pod)}: {ill.message}" if ill else f"waits for pod {pod['metadata']['name']} to start"


# --- the report -------------------------------------------------------------------------------------------------------


async def _kept(access: Access, snapshot: Snapshot, gate: state.Gate) -> dict[str, str]:
    """The ConfigMap that the operator wrote when the gate had ended (docs/rollouts.md)."""
    if not gate.verdict:
        name = snapshot.parent["metadata"]["name"]
        raise Refusal(f"the gate still runs: kubectl island gate {name} --logs --follow shows what it does")
    space = snapshot.parent["metadata"]["namespace"]
    try:
        found = await access.cluster.get("ConfigMap", space, gate.report or gate.job)
    except ApiError as error:
        if error.status == 403:
            raise Refusal(f"ConfigMap {gate.job} may not be read: {error}; ask for get on configmaps") from error
        raise
    if found is None:
        told = f"no ConfigMap {gate.job} keeps the report of this gate: it went with its Job, or was never written"
        raise Refusal(f"{told}; kubectl island gate {snapshot.parent['metadata']['name']} says what the status keeps")
    return dict(found.get("data") or {})


def as_page(gate: state.Gate, kept: dict[str, str]) -> str:
    """The gate's own page where its log held the whole report; else verdict and log in one of ours. Both are made of
    what an image said, so that no browser is to run anything in them.
    """
    for line in kept.get("report.jsonl", "").splitlines():
        with contextlib.suppress(*UNLIKE):
            report = json.loads(line)
            if report["schema"] == SCHEMA:
                return page.page(report).replace(CHARSET, CHARSET + INERT, 1)
    return _plain_page(gate, kept)


def _plain_page(gate: state.Gate, kept: dict[str, str]) -> str:
    facts = state.dumped(gate)
    with contextlib.suppress(*UNLIKE):
        facts = dict(json.loads(kept["verdict.json"]))
    rows = "".join(f"<tr><th>{quoted(str(k))}</th><td>{quoted(_told(v))}</td></tr>" for k, v in facts.items())
    log = kept.get("log.txt", "")
    verdict, color = str(gate.verdict), VERDICT_COLORS.get(str(gate.verdict), "#59636e")
    return "\n".join(
        [
            f"<!doctype html><html lang='en'>{CHARSET}{INERT}",
            f"<title>Gate: {quoted(verdict)}</title><style>{page.STYLE} pre{{overflow:auto}}</style>",
            f"<h1 style='background:{color}'>{quoted(f'{verdict}: {gate.reason}')}</h1>",
            f"<p>{quoted(gate.message or '')}</p>",
            f"<table>{rows}</table>",
            f"<h2>Log</h2><pre>{quoted(log) or 'not kept'}</pre></html>\n",
        ]
    )


def _told(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict | list) else str(value)


@contextlib.contextmanager
def _opened(output: str | None) -> Iterator[TextIO]:
    """The file of --output, else standard output."""
    if output is None:
        yield sys.stdout
        return
    try:
        with Path(output).open("w", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise Refusal(f"--output {output} cannot be written: {error.strerror}") from error
    show([f"Saved to {output}."])
