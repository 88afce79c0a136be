"""`kubectl island diff NAME [REVISION [REVISION]]`: what makes the pods of two revisions differ."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import yaml
from rich.text import Text

from island_operator.cli.kubectl.access import Refusal
from island_operator.cli.kubectl.legible import lacking, wish
from island_operator.cli.kubectl.text import show, show_json, with_cap
from island_operator.cli.kubectl.view import pair_of
from island_operator.core import state
from island_operator.core.model import Snapshot
from island_operator.core.revision import remembered
from island_operator.core.view import Pass

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from island_operator.cli.kubectl.access import Access
    from island_operator.core.model import Object
    from island_operator.core.revision import Revision

COLOURS = {"+": "green", "-": "red", "@": "cyan"}
ROLES = ("stable", "canary", "desired")
SHORTEST = 3  # characters that may stand for a revision


async def run(args: argparse.Namespace, access: Access) -> int:
    """Exit code 0: the same. 1: they differ, as diff and kubectl diff have it."""
    parent = await access.parent(args.name)
    space = parent["metadata"]["namespace"]
    children = [
        c for k in ("Deployment", "Service") for c in (await access.cluster.list(k, space, instance=args.name)).items
    ]
    snapshot = Snapshot(parent, tuple(children))
    old, new = pair(snapshot, args.old, args.new)
    if args.json:
        changes = [{"path": p, "old": a, "new": b} for p, a, b in differences(old.parts, new.parts)]
        show_json({"old": old.hash, "new": new.hash, "changes": changes})
    else:
        if args.new is None:
            show([f"From revision {old.hash}, which serves, to revision {new.hash}:"])
        show(unified(old, new))
    return int(old.hash != new.hash)


def pair(snapshot: Snapshot, one: str | None, other: str | None) -> tuple[Revision, Revision]:
    """Old and new. A revision that is named alone is compared with the one that serves; without any, what is rolled out
    is, or else what the spec asks for.
    """
    if one and other:
        return find(snapshot, one), find(snapshot, other)
    known = state.read(snapshot.parent.get("status") or {})
    comes = "canary" if known.run and known.run.revision != known.active else "desired"
    old, new = find(snapshot, "stable"), find(snapshot, one or comes)
    if old.hash == new.hash:
        what = ", the one that the spec asks for," if one is None else ""
        raise Refusal(f"nothing to compare: revision {new.hash}{what} is what serves; name another one")
    return old, new


def find(snapshot: Snapshot, asked: str) -> Revision:
    """A revision by its name, the beginning of it, or what it is: stable, canary or desired."""
    known = state.read(snapshot.parent.get("status") or {})
    asks = wish(snapshot.parent)
    if asks is None:
        raise Refusal(lacking(snapshot.parent))
    run = known.run.revision if known.run else None
    by_role = {"stable": known.active, "canary": run if run != known.active else None, "desired": asks.desired}
    names = _names(snapshot, known, asks.desired)
    if asked in by_role:
        name = by_role[asked]
        if name is None:
            raise Refusal(f"{snapshot.parent['metadata']['name']} has no {asked} revision now: it has {_listed(names)}")
    else:
        found = [n for n in names if n.startswith(asked)] if len(asked) >= SHORTEST else []
        if len(found) != 1:
            wrong = f"{len(found)} revisions begin with" if found else "there is no revision"
            raise Refusal(f"{wrong} {asked}: use one of {_listed(names)}, or {', '.join(ROLES)}")
        (name,) = found
    revision = Pass(asks, snapshot, {}, "").revision(name)
    if revision is None:
        told = f"revision {name} is only remembered by its name: it never had pods, or its Deployment is gone"
        raise Refusal(f"{told}; spec.rollout.historyLimit says how many are kept")
    return revision


def _names(snapshot: Snapshot, known: state.State, desired: str | None) -> list[str]:
    kept = [revision.hash for child in snapshot.children if (revision := remembered(child))]
    told = [*(k.revision for k in known.history), *(r.revision for r in known.rejected)]
    return [name for name in dict.fromkeys([desired, known.active, *kept, *told]) if name]


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"


def unified(old: Revision, new: Revision) -> list[Text]:
    """The pair in words, then a unified diff of the parts as YAML; nothing where they are the same."""
    if old.hash == new.hash:
        return []
    lines = [
        Text(f"{mark} {with_cap(pair_of(revision.half))}", COLOURS[mark]) for mark, revision in (("-", old), ("+", new))
    ]
    if lines[0].plain[1:] == lines[1].plain[1:]:
        lines = [Text(f"  {with_cap(pair_of(new.half))}, both")]
    names = f"revision {old.hash}", f"revision {new.hash}"
    for line in difflib.unified_diff(_yaml(old), _yaml(new), *names, lineterm=""):
        lines.append(Text(line, COLOURS.get(line[:1], "")))
    return lines


def _yaml(revision: Revision) -> list[str]:
    text: str = yaml.safe_dump(revision.parts, sort_keys=True, width=1000)
    return text.splitlines()


def differences(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Path, old and new value of every leaf that differs; None where it is not there. Lists are leaves."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        if old != new:
            yield path, old, new
        return
    keys: Object = {**old, **new}
    for key in sorted(keys):
        yield from differences(old.get(key), new.get(key), f"{path}.{key}" if path else key)
