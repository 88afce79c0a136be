"""A plan as JSON (design: Interfaces, JSON of `plan`), as a patch and for people."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from island_engine.planner.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console
    from rich.table import Table

    from island_engine.planner.check import Row
    from island_engine.planner.plan import Plan, Side

DEFAULT = 0.8  # of --swa-full-tokens-ratio
SHOWN = (0.05, 0.1, 0.17, 0.32, DEFAULT)  # ratios of the capacity line
LEAST_NEEDED = ("its floor", "of the bound", "SWA pool")  # columns that a narrow terminal goes without, in that order
WORDS = {"islands", "limited by", "checked", ""}  # columns that may be folded; numbers never are
UNLIMITED = 1000  # cells, to ask how wide a table would like to be
BINDS = {"full": "full pool", "swa": "SWA pool", "cap": "requests at once"}


def as_json(plan: Plan, ratio: float | None = None) -> dict[str, Any]:
    """One object. Tokens, bytes and requests; a ratio is a number here and text in the patch."""
    cost, found = plan.model.cost, judge(plan)
    full, swa = plan.model.layers or (None, None)
    said: dict[str, Any] = {
        "model": plan.model.name,
        "window": cost.window,
        "page": plan.serving.page,
        "chunk": plan.serving.chunk,
        "max_running_requests": plan.serving.running,
        "reserved_ahead": plan.serving.ahead,
        "full_layers": full,
        "swa_layers": swa,
        "full_bytes_per_token": cost.full_bytes,
        "swa_bytes_per_token": cost.swa_bytes,
        "draft_bytes_per_token": cost.draft_bytes,
        "kv_bytes": plan.budget,
        "workload": None,
        "halves": {"on": _side(plan, plan.on), "off": _side(plan, plan.off)},
        "bound": _round(plan.bound),
        "patch": plan.patch,
        "verdict": {"kind": found.kind, "text": found.text, "simulated_percent": found.simulated},
    }
    if plan.workload:
        said["workload"] = asdict(plan.workload) | {"full_tokens_per_request": round(plan.workload.length)}
    if ratio is not None:
        said["at_ratio"] = _half(plan.at(ratio, islands=True))
        said["at_ratio_off"] = _half(plan.at(ratio, islands=False))
    return said


def _half(side: Side) -> dict[str, Any]:
    return {
        "ratio": side.ratio,
        "max_total_tokens": side.half.max_total_tokens,
        "swa_tokens": side.half.swa_tokens,
        "swa_floor": side.floor,
        "running": round(side.running, 1),
        "binds": side.binds,
        "bound": side.bound,
    }


def _side(plan: Plan, side: Side) -> dict[str, Any]:
    edges = {"plateau": plan.plateau(islands=side.islands), "flat": plan.flat(islands=side.islands)}
    return _half(side) | {
        "max_running_requests": side.cap,
        "cliff": round(plan.cliff(islands=side.islands), 4),
        **{name: [round(edge, 4) for edge in found] if found else None for name, found in edges.items()},
    }


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def patch_yaml(plan: Plan, name: str = "NAME") -> str:
    """What `kubectl patch --patch-file` takes, with the command in its first line."""
    spec = plan.patch["spec"]
    flow = {key: _flow(value) for key, value in spec["partition"].items()}
    return (
        f"# kubectl patch iisvc {name} --type merge --patch-file FILE\n"
        f"spec:\n  engine: {_flow(spec['engine'])}\n  geometry:\n"
        + "".join(f"    {key}: {value}\n" for key, value in spec["geometry"].items())
        + "  partition:\n"
        f"    islands: {flow['islands']}\n    stock: {flow['stock']}\n"
    )


def _flow(mapping: dict[str, Any]) -> str:
    pairs = (f'{key}: "{value}"' if isinstance(value, str) else f"{key}: {value}" for key, value in mapping.items())
    return "{" + ", ".join(pairs) + "}"


def show(
    plan: Plan, console: Console, ratio: float | None = None, rows: Iterable[Row] = (), name: str = "NAME"
) -> None:
    """Print it. `rows`: how it compares with an engine; `name`: of the InferenceService to patch."""
    console.print(_facts(plan))
    console.print(_table(plan, console, ratio))
    for line in _edges(plan):
        console.print(line, highlight=False)
    console.print()
    console.print(judge(plan).text, style="bold", highlight=False)
    console.print()
    if rows := list(rows):
        console.print(_checked(rows, console))
    console.print(patch_yaml(plan, name), highlight=False, markup=False, soft_wrap=True, end="")


def _facts(plan: Plan) -> Table:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    cost, work = plan.model.cost, plan.workload
    layers = "{} full and {} sliding layers, ".format(*plan.model.layers) if plan.model.layers else ""
    dtype = f", KV {plan.model.dtype}" if plan.model.dtype else ""
    table.add_row("model", f"{plan.model.name}: {layers}window {cost.window:,}{dtype}")
    flat = f"{cost.full_bytes:,} B full" + (f" + {cost.draft_bytes:,} B draft" if cost.draft_bytes else "")
    table.add_row("a token costs", f"{flat} + r x {cost.swa_bytes:,} B SWA")
    tokens = "   ".join(f"r {ratio:g}: {cost.capacity(ratio, plan.budget) / 1000:,.0f}k" for ratio in SHOWN)
    held = f"{plan.budget / 1e9:.1f} GB" if plan.budget >= 1e8 else f"{plan.budget / 1e6:.1f} MB"
    table.add_row(f"{held} hold", tokens)
    serving = plan.serving
    drafted = f", {serving.ahead:,} slots ahead of each for drafts" if serving.drafted else ""
    table.add_row(
        "engine", f"page {serving.page}, chunk {serving.chunk:,}, at most {serving.running} requests at once{drafted}"
    )
    if work:
        shared = f" ({work.shared:,} of them common to all)" if work.shared else ""
        reused = f", {work.reuse:.0%} of the prompts cached before" if work.reuse else ""
        clients = f", {work.concurrency} outstanding" if work.concurrency else ""
        table.add_row("workload", f"{work.isl:,.0f} in{shared}, {work.osl:,.0f} out{reused}{clients}")
        table.add_row("a request takes", f"{work.length + serving.drafted:,.0f} tokens of the full pool on average")
    return table


def _fitted(heads: Sequence[str], rows: Sequence[tuple[list[str], str]], console: Console) -> Table:
    """Rows of cells, each with a style, as wide as the console at most, and no cell cut: heads and words are folded,
    and where that is not enough the LEAST_NEEDED columns are left out.
    """
    table, options = _grid(heads, heads, rows), console.options.update(max_width=UNLIMITED)
    if console.measure(table, options=options).maximum <= console.width:
        return table
    kept = list(heads)
    for name in ("", *LEAST_NEEDED):
        kept = [head for head in kept if head != name or not name]
        table = _grid(heads, kept, rows, tight=True)
        if console.measure(table, options=options).minimum <= console.width:
            break
    return table


def _grid(
    heads: Sequence[str], kept: Sequence[str], rows: Sequence[tuple[list[str], str]], *, tight: bool = False
) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(heads):
        if name in WORDS and name in kept:
            table.add_column(name, overflow="fold")
        elif name in kept:
            widest = max(map(len, [*name.split(), *(cells[index] for cells, _ in rows)]))
            table.add_column(name, justify="right", width=widest if tight else None)
    for cells, style in rows:
        table.add_row(*(cell for name, cell in zip(heads, cells, strict=True) if name in kept), style=style)
    return table


def _table(plan: Plan, console: Console, ratio: float | None) -> Table:
    heads = ("islands", "ratio", "full pool", "SWA pool", "its floor", "run at once", "limited by", "of the bound")
    rows = []
    sides = [("on", plan.on, "bold"), ("off", plan.off, "bold")]
    sides += [("off, on the lean half", plan.side(plan.on.half, islands=False), "dim")]
    sides += [("off, SGLang's default", plan.at(DEFAULT, islands=False), "dim")]
    if ratio is not None:
        sides += [(f"{switch}, --ratio", plan.at(ratio, islands=switch == "on"), "") for switch in ("on", "off")]
    for name, side, style in sides:
        row = [name, side.half.ratio, f"{side.half.max_total_tokens:,}", f"{side.half.swa_tokens:,}", f"{side.floor:,}"]
        share = f"{side.running / plan.bound:.0%}" if plan.bound else ""
        rows.append(([*row, f"{side.running:,.0f}", BINDS[side.binds], share], style))
    return _fitted(heads, rows, console)


def _edges(plan: Plan) -> list[str]:
    """How flat the optimum is and where the cliff lies."""
    lines = []
    for side in (plan.on, plan.off):
        switch = "on" if side.islands else "off"
        cliff = plan.cliff(islands=side.islands)
        left = plan.at(max(0.0001, 0.8 * cliff), islands=side.islands)
        line = f"{switch}: cliff at r {cliff:.3f}; left of it the SWA pool binds, "
        line += f"r {left.half.ratio} runs {left.running:.0f}"
        if plateau := plan.plateau(islands=side.islands):
            line += f"; all {plan.most} run from r {plateau[0]:.3f} to {plateau[1]:.3f}"
        elif flat := plan.flat(islands=side.islands):
            line += f"; within 2 % of the most from r {flat[0]:.3f} to {flat[1]:.3f}"
        if plan.workload and plan.workload.reuse > 0:
            more = plan.at(min(1.0, side.ratio + 0.01), islands=side.islands)
            line += (
                f"; 0.01 more costs {side.half.max_total_tokens - more.half.max_total_tokens:,} tokens of prefix cache"
            )
        lines.append(line + ".")
    if plan.bound:
        lines.append(f"bound: {plan.bound:.1f}, if each request pinned no more than its window.")
    return lines


def _checked(rows: Iterable[Row], console: Console) -> Table:
    said = ([row.what, row.planned, row.engine, "agrees" if row.agrees else "[bold red]differs[/]"] for row in rows)
    return _fitted(("checked", "plan", "engine", ""), [(cells, "") for cells in said], console)
