"""`kubectl island history NAME`: which revisions there were, what became of them, and what was said to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from island_operator.cli.kubectl import tree, view
from island_operator.cli.kubectl.legible import wish
from island_operator.cli.kubectl.model import plain
from island_operator.cli.kubectl.status import now
from island_operator.cli.kubectl.text import age, columns, show, show_json
from island_operator.core import state

if TYPE_CHECKING:
    import argparse

    from island_operator.cli.kubectl.access import Access
    from island_operator.core.model import Snapshot

HEAD = ("REVISION", "ROLE", "ISLANDS", "RATIO", "TOKENS", "GATE", "PROMOTED", "REJECTED")
RUNNING = "RUNNING"  # where a verdict will be


async def run(args: argparse.Namespace, access: Access) -> int:
    """Exit code 0."""
    snapshot = await access.snapshot(args.name)
    if args.json:
        show_json(told(snapshot))
    else:
        show(table(snapshot, now()))
    return 0


def told(snapshot: Snapshot) -> dict[str, Any]:
    """Revisions, newest first, and the verbs that were asked for, newest last."""
    known = state.read(snapshot.parent.get("status") or {})
    return {
        "revisions": [_revision(name, known, snapshot) for name in _names(known, snapshot)],
        "verbs": [{"verb": v.name, "at": v.at, "outcome": v.outcome} for v in known.verbs],
    }


def table(snapshot: Snapshot, moment: str) -> list[Text]:
    """The same for a person."""
    found = told(snapshot)
    rows: list[list[Text | str]] = [[Text(title, "bold") for title in HEAD]]
    for one in found["revisions"]:
        pair = one["pair"] or {}
        verdict = one["verdict"] or ""
        mark = tree.MOVING if verdict == RUNNING else tree.VERDICTS.get(verdict, tree.WARNING)
        promoted, refused = one["promotedAt"], one["rejected"]
        rows.append(
            [
                one["revision"],
                ",".join(one["roles"]),
                ("on" if pair["islands"] else "off") if pair else "",
                (pair.get("ratio") or "unified") if pair else "",
                f"{pair['maxTotalTokens']:,}" if pair.get("maxTotalTokens") else "",
                tree.marked(mark, verdict),
                f"{age(promoted, moment)} ago" if promoted else "",
                f"{refused['reason']}, {age(refused['at'], moment)} ago: {refused['message']}" if refused else "",
            ]
        )
    lines = columns(rows) if found["revisions"] else [Text("No revision yet.")]
    for verb in found["verbs"]:
        lines.append(Text(f"{age(verb['at'], moment)} ago  {verb['verb']}: {verb['outcome']}"))
    if found["verbs"]:
        lines.insert(len(lines) - len(found["verbs"]), Text())
    return lines


def _names(known: state.State, snapshot: Snapshot) -> list[str]:
    """What comes, then what is remembered, the newest first; then the rejected."""
    run = [known.run.revision] if known.run else []
    history = [k.revision for k in reversed(known.history)]
    rejected = [r.revision for r in reversed(known.rejected)]
    return [name for name in dict.fromkeys([*run, *history, known.desired, *rejected]) if name]


def _revision(name: str, known: state.State, snapshot: Snapshot) -> dict[str, Any]:
    kept = view.parts_of(name, snapshot, wish(snapshot.parent))
    remembrance, rejection = known.known(name), known.rejection(name)
    gate = view.gate_of(name, known)
    return {
        "revision": name,
        "roles": list(view.roles(name, known)),
        "pair": plain(view.pair_of(kept.half) if kept else view.remembered_pair(name, known)),
        "verdict": (remembrance and remembrance.verdict) or (gate and (gate.verdict or RUNNING)),
        "promotedAt": remembrance.promoted_at if remembrance else None,
        "rejected": {"reason": rejection.reason, "at": rejection.at, "message": rejection.message}
        if rejection
        else None,
    }
