"""The tree of `kubectl island status`: a View as lines. Icons and columns are those of Argo Rollouts' plugin. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from island_operator.cli.kubectl.text import age, columns, duration, in_words, labelled, with_cap

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from island_operator.cli.kubectl.model import Gate, Pod, Revision, Step, View

INSTANCE, REVISION, JOB, POD = "⟳", "#", "⊞", "□"
GOOD, MOVING, WAITING, PAUSED, WARNING, BAD, IDLE = "✔", "◌", "◷", "॥", "⚠", "✖", "•"
COLOURS = {GOOD: "green", MOVING: "bright_blue", WAITING: "yellow", WARNING: "red", BAD: "red"}
HEALTH = {
    "Healthy": GOOD,
    "Progressing": MOVING,
    "Waiting": WAITING,
    "Paused": PAUSED,
    "Degraded": WARNING,
    "Down": BAD,
}
VERDICTS = {"PASS": GOOD, "FAIL": BAD, "INCONCLUSIVE": WARNING, "ERROR": BAD}
DYING = {"CrashLoopBackOff", "Error", "OOMKilled", "ImagePullBackOff", "ErrImagePull", "Failed", "InvalidImageName"}
ROLES = {"stable": "green", "canary": "yellow", "promoting": "yellow", "gating": "yellow", "rejected": "red"}
LABEL = 17  # width of the names above the tree


@dataclass(frozen=True)
class Row:
    """One line of the tree and what hangs below it."""

    icon: str
    name: str
    kind: str
    mark: str
    status: str
    created: str | None
    info: Text
    below: tuple[Row, ...] = ()


def render(view: View, now: str) -> list[Text]:
    """All lines, the summary above the tree."""
    return [*_summary(view), Text(), *_table(view, now)]


def marked(mark: str, text: str) -> Text:
    """An icon in its colour, and a word."""
    return Text.assemble((mark, COLOURS.get(mark, "")), f" {text}") if text else Text()


def _summary(view: View) -> Iterator[Text]:
    yield _line("Name", view.name)
    yield _line("Namespace", view.namespace)
    what = view.phase if view.reason == view.phase or view.health == "Healthy" else f"{view.phase} ({view.reason})"
    yield _line("Status", marked(HEALTH[view.health], what))
    if view.pair:
        yield _line("Pair", with_cap(view.pair))
    if view.step:
        yield _line("Step", _step(view.step))
    if view.mode:
        yield _line("Mode", view.mode if view.kind == "Rollout" else f"{view.kind}, at once")
    yield from _lines("Images", _images(view))
    yield _line("Replicas", f"{view.replicas} desired, {view.ready} Ready")
    yield from _lines("Unreadable", view.unreadable)
    if view.health == "Healthy":
        yield _line("Waits for", "nothing")
    else:
        yield from _lines("Message" if view.health in {"Degraded", "Down"} else "Waits for", view.messages)
    wide = max((len(hint.command) for hint in view.hints), default=0)
    yield from _lines("To do", [f"{hint.command:{wide}}  {hint.effect}" for hint in view.hints])


def _lines(name: str, told: Iterable[str]) -> Iterator[Text]:
    for index, one in enumerate(told):
        yield _line("" if index else name, one)


def _line(name: str, told: Text | str) -> Text:
    return labelled(name, told, LABEL)


def _images(view: View) -> list[str]:
    """What runs or is about to, and as what."""
    used: dict[str, list[str]] = {}
    for revision in view.revisions:
        if revision.image and (revision.pods or revision.replicas or revision.roles):
            used.setdefault(revision.image, []).extend(revision.roles)
    return [f"{image} ({', '.join(dict.fromkeys(roles))})" if roles else image for image, roles in used.items()]


def _step(step: Step) -> str:
    left = "" if step.left is None else f", {duration(step.left)} left"
    held = f"holds {duration(step.pause)}{left}" if step.pause else "does not hold"
    return f"{step.number} of {step.of}, {step.weight} % of the pods, {held}"


def _table(view: View, now: str) -> list[Text]:
    top = Row(
        INSTANCE,
        view.name,
        "InferenceService",
        HEALTH[view.health],
        view.phase,
        view.created,
        Text(),
        tuple(_revision(revision) for revision in view.revisions),
    )
    head: list[Text | str] = [Text(title, "bold") for title in ("NAME", "KIND", "STATUS", "AGE", "INFO")]
    return columns([head, *_cells(top, now, "", "")])


def _cells(row: Row, now: str, own: str, below: str) -> Iterator[list[Text | str]]:
    yield [f"{own}{row.icon} {row.name}", row.kind, marked(row.mark, row.status), age(row.created, now), row.info]
    for index, child in enumerate(row.below):
        last = index == len(row.below) - 1
        yield from _cells(child, now, below + ("└──" if last else "├──"), below + ("   " if last else "│  "))


def _revision(revision: Revision) -> Row:
    mark, status = _state(revision)
    words = [Text(role, ROLES.get(role, "")) for role in revision.roles]
    info = Text(", ").join([*words, *([Text(in_words(revision.pair))] if revision.pair else [])])
    gate = (_gate(revision.gate),) if revision.gate else ()
    return Row(
        REVISION,
        f"revision {revision.name}",
        "Deployment" if revision.created else "",
        mark,
        status,
        revision.created,
        info,
        (*gate, *(_pod(pod) for pod in revision.pods)),
    )


def _state(revision: Revision) -> tuple[str, str]:
    if revision.rejected and not revision.ready:
        return BAD, f"Rejected ({revision.rejected})"
    if not revision.replicas and not revision.pods:
        if "gating" in revision.roles:
            return MOVING, "Gating"
        return (IDLE, "ScaledDown") if revision.created else (IDLE, "NoPods")
    whole = revision.ready >= revision.replicas and len(revision.pods) <= revision.replicas
    return (GOOD if whole else MOVING), f"{revision.ready}/{revision.replicas} Ready"


def _gate(gate: Gate) -> Row:
    if gate.verdict:
        mark, status = VERDICTS.get(gate.verdict, WARNING), gate.verdict
    else:
        mark, status = MOVING, "Running" if gate.reason in {None, "GateRunning"} else str(gate.reason)
    told = []
    if gate.verdict and gate.verdict != "PASS" and gate.reason:
        told.append(gate.reason)
    if gate.probes:
        took = f" in {duration(gate.seconds)}" if gate.seconds else ""
        told.append(f"{gate.probes:,} serves, {gate.tokens or 0:,} tokens compared{took}")
    if gate.progress:
        told.append(gate.progress)
    pods = () if gate.verdict else tuple(_pod(pod) for pod in gate.pods)
    return Row(JOB, gate.job, "Job", mark, status, gate.started_at, Text(", ".join(told)), pods)


def _pod(pod: Pod) -> Row:
    if pod.ready:
        mark = GOOD
    elif pod.status in DYING:
        mark = BAD
    elif pod.status in {"Terminating", "Completed", "Succeeded"}:
        mark = IDLE
    else:
        mark = WAITING if pod.status == "Pending" else MOVING
    told = [
        f"ready:{int(pod.ready)}/1",
        f"restarts:{pod.restarts}" if pod.restarts else "",
        pod.trouble or "",
        pod.node or "",
    ]
    return Row(POD, pod.name, "Pod", mark, pod.status, pod.created, Text(",".join(t for t in told if t)))
