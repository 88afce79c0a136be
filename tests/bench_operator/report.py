"""The table, the JSON and the picture of a run."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from island_engine.bench.plot import INK, QUIET, figure, save

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One target: `value` must not be above `limit`. No limit: told for information."""

    id: str
    what: str
    value: float
    unit: str
    limit: float | None = None

    @property
    def verdict(self) -> str:
        """met, MISSED, or nothing."""
        return "" if self.limit is None else "met" if self.value <= self.limit else "MISSED"


@dataclass
class Report:
    """Rows in the order in which they were measured, and the curves of the picture."""

    rows: list[Row] = field(default_factory=list)
    curves: dict[str, Any] = field(default_factory=dict)

    def add(self, *rows: Row) -> None:
        """Measured: print it at once, because the rest takes minutes."""
        for row in rows:
            if not self.rows:
                print(f"\n{'':52}{'target':>14}{'measured':>16}  verdict")
            target = "" if row.limit is None else f"<= {_short(row.limit)} {row.unit}"
            print(f"{row.what:52}{target:>14}{_short(row.value):>10} {row.unit:5}  {row.verdict}", flush=True)
            self.rows.append(row)

    @property
    def missed(self) -> list[Row]:
        """Targets that were not met."""
        return [row for row in self.rows if row.verdict == "MISSED"]

    def write(self, path: Path, resources: int) -> None:
        """{"measured", "machine", "resources", "rows": [{id, what, value, unit, limit, verdict}]}."""
        rows = [asdict(row) | {"value": round(row.value, 3), "verdict": row.verdict} for row in self.rows]
        machine = {"cores": os.cpu_count(), "load_1min": round(os.getloadavg()[0], 1)}
        told = {"measured": datetime.now(UTC).strftime("%Y-%m-%d"), "machine": machine, "resources": resources}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**told, "rows": rows}, indent=1) + "\n")

    def draw(self, path: Path) -> None:
        """Convergence, latencies and memory, as far as they were measured."""
        panels = [draw for name, draw in PANELS.items() if name in self.curves]
        if not panels:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        made, axes = figure(
            "The operator at scale",
            "A real API server, etcd, controller manager and scheduler; KWOK plays nodes and pods.",
            columns=len(panels),
            size=(4.6 * len(panels) + 0.4, 4.6),
        )
        for draw, one in zip(panels, axes if len(panels) > 1 else [axes], strict=True):
            draw(one, self.curves)
        save(made, path)


def _converge(axes: Any, curves: dict[str, Any]) -> None:
    seconds, ready, depth = zip(*curves["converge"], strict=True)
    axes.plot(seconds, ready, color="#0969da", label="Ready")
    axes.plot(seconds, depth, color=QUIET, linestyle="--", label="queued")
    _axes(axes, "InferenceServices from nothing", "seconds")


def _latency(axes: Any, curves: dict[str, Any]) -> None:
    looks = {"rollouts": ("#0969da", 750), "status only": ("#1a7f37", 100)}  # colour, and the target of p99 in ms
    for name, values in curves["latency"].items():
        color, target = looks[name]
        shares = [(number + 1) / len(values) for number in range(len(values))]
        axes.plot(sorted(values), shares, color=color, label=name)
        axes.axvline(target, color=color, linestyle=":", linewidth=1.2)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    _axes(axes, "an edit's event to status, share of edits", "milliseconds (dotted: target of p99)")


def _memory(axes: Any, curves: dict[str, Any]) -> None:
    rollouts, mib = zip(*curves["memory"], strict=True)
    axes.plot(rollouts, mib, color="#0969da", label="resident")
    axes.set_ylim(0, max(mib) * 1.3)
    _axes(axes, "operator's memory, MiB", "rollouts")


PANELS = {"converge": _converge, "latency": _latency, "memory": _memory}


def _axes(axes: Any, title: str, across: str) -> None:
    axes.set_title(title, fontsize=10.5, color=INK, loc="left")
    axes.set_xlabel(across, fontsize=9.5, color=QUIET)
    axes.legend(frameon=False, fontsize=9)
    axes.grid(color="#d8dee4", linewidth=0.8)


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.2f}"
