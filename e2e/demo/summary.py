"""The end of the demo: what ran, what the client saw, and the bound of each half."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from island_engine import sizing

if TYPE_CHECKING:
    from rich.console import Console

    from demo.kube import Object
    from demo.telling import Outcome


def revisions(outcome: Outcome, spec: Object) -> Table:
    """Every revision that had a pod: its pair, its end, and how many requests its pools can hold."""
    table = Table(title="Revisions", title_justify="left")
    for column in ("revision", "islands", "SWA ratio", "max tokens", "requests its pools hold", "pods", "verdict"):
        table.add_column(column)
    rejected = {
        r["revision"]: r["reason"] for s in outcome.statuses.values() for r in s["revisions"].get("rejected", [])
    }
    passed = {s["gate"]["revision"] for s in outcome.statuses.values() if s.get("gate", {}).get("verdict") == "PASS"}
    for revision in dict.fromkeys(p.revision for p in sorted(outcome.pods, key=lambda p: p.created)):
        pods = [p for p in outcome.pods if p.revision == revision and p.pair]
        verdict = rejected.get(revision) or ("gate PASS" if revision in passed else "not gated")
        # Only its gate ran: no pod ever served it, and what is gated is the islands half.
        pair = pods[0].pair if pods else next((half for half in outcome.halves if half[0]), None)
        islands, ratio, tokens = pair or (False, "0", 0)
        holds = sizing.bound(spec, islands=islands, ratio=float(ratio), tokens=tokens)
        ran, told = (str(len(pods)), verdict) if pods else ("none", f"rejected: {verdict}")
        table.add_row(revision, "on" if islands else "off", ratio, f"{tokens:,}", str(holds), ran, told)
    return table


def facts(outcome: Outcome) -> Table:
    """What the witnesses counted."""
    table = Table(title="What the witnesses saw", title_justify="left", show_header=False)
    good = sorted(r.seconds for r in outcome.requests if r.ok)
    median = f"{good[len(good) // 2]:.2f} s" if good else "none"
    table.add_row("requests sent through the Service", str(len(outcome.requests)))
    table.add_row("requests failed", str(len(outcome.failed)))
    table.add_row("median latency", median)
    table.add_row("pods seen", f"{len(outcome.pods)} ({sum(p.role == 'gate' for p in outcome.pods)} of them gates)")
    mixed = ", ".join(p.name for p in outcome.mixed) or "none"
    table.add_row("pods with the switch of one half and the ratio of the other", mixed)
    for key, what in (
        ("serve", "apply to Ready, two boots"),
        ("switch_on", "gate, canary and promotion"),
        ("plant", "planted fault to rejection"),
        ("kill_switch", "kill switch to all pods on the stock half"),
    ):
        if key in outcome.took:
            table.add_row(what, f"{outcome.took[key]:.0f} s")
    return table


def show(console: Console, outcome: Outcome, spec: Object) -> None:
    """Print both tables."""
    console.print()
    console.print(revisions(outcome, spec))
    console.print(facts(outcome))
