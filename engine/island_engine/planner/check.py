"""Does the plan agree with an engine: the log of a boot of SGLang 0.5.23, or one that runs (/server_info, /metrics)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from island_engine import drafts
from island_engine.drafts import ALONE, NONE, Drafts
from island_engine.planner.capacity import hold
from island_engine.planner.errors import PlanError

if TYPE_CHECKING:
    from island_engine.planner.plan import Plan
    from island_engine.sizing import Geometry

TIMEOUT = 5.0  # seconds
NEAR = 0.02  # a budget that differs by less is the same: other boots profile a little more or less
GIB = 1 << 30
_POOLS = re.compile(r"full_layer_tokens=(\d+), swa_layer_tokens=(\d+)")
_SIZES = re.compile(r"(Full|SWA) KV Cache is allocated\..* K size: ([\d.]+) GB, V size: ([\d.]+) GB")
_HOLD = re.compile(r'^island_hold_tokens\{[^}]*stat="mean"[^}]*\} (\S+)$', re.MULTILINE)


@dataclass(frozen=True)
class Engine:
    """What an engine says of itself. Tokens. `found`: full-pool tokens that its memory had room for, before
    --max-total-tokens; `sizes`: GiB of the full and the SWA pool, rounded by its log; `hold`: SWA tokens pinned per
    running request, None while nothing runs or islands are off.
    """

    full: int
    swa: int
    ratio: float
    page: int
    chunk: int
    running: int
    drafts: Drafts = NONE
    found: int | None = None
    sizes: tuple[float, float] | None = None
    hold: float | None = None

    def budget(self, cost: Geometry) -> int:
        """Bytes that it has for KV: what it found, else what its pools take."""
        if self.found:
            return round(self.found * cost.bytes_per_token(self.ratio))
        return self.full * (cost.full_bytes + cost.draft_bytes) + self.swa * cost.swa_bytes


@dataclass(frozen=True)
class Row:
    """One number of both."""

    what: str
    planned: str
    engine: str
    agrees: bool


def read(source: str) -> Engine:
    """From a log's path or an engine's URL. PlanError when there is no SWA pool, or nobody answers."""
    if source.startswith(("http://", "https://")):
        return _ask(source.rstrip("/"))
    try:
        return of_log(Path(source).read_text(encoding="utf-8", errors="replace"), source)
    except OSError as fault:
        raise PlanError(
            f"--check {source}: {(fault.strerror or 'unreadable').lower()}; give a boot's log, or http://HOST:PORT"
        ) from None


def of_log(text: str, source: str) -> Engine:
    """The engine whose boot this is the log of."""
    pools = _POOLS.findall(text)
    said = {
        name: match[1]
        for name in ("page_size", "chunked_prefill_size", "swa_full_tokens_ratio")
        if (match := re.search(rf"['\s(]{name}'?[:=] ?([\d.]+)", text))
    }
    running = re.search(r"\bmax_running_requests=(\d+)", text)
    if not pools or len(said) < 3 or not running:
        raise PlanError(
            f"--check {source}: names no SWA pool; give the whole log of a boot of SGLang, or http://HOST:PORT"
        )
    sizes: dict[str, float] = {}
    for which, k, v in _SIZES.findall(text):  # the target's pools come first, a draft's after
        sizes.setdefault(which, float(k) + float(v))
    return Engine(
        full=min(int(full) for full, _ in pools),  # first what there is room for, then what --max-total-tokens left
        swa=min(int(swa) for _, swa in pools),
        ratio=float(said["swa_full_tokens_ratio"]),
        page=int(said["page_size"]),
        chunk=int(said["chunked_prefill_size"]),
        running=int(running[1]),
        drafts=drafts.of_fields({name: _said(name, text) for name in drafts.FIELDS}),
        found=max(int(full) for full, _ in pools),
        sizes=(sizes["Full"], sizes["SWA"]) if len(sizes) == 2 else None,
    )


def _said(name: str, text: str) -> str | None:
    """A field of the server's arguments in a log: `name=value`, or as a dictionary prints it."""
    found = re.search(rf"['\s(]{name}'?[:=] ?'?([\w.-]+)", text)
    return found[1] if found else None


def of_answers(info: dict[str, Any], metrics: str, source: str) -> Engine:
    """The engine that gave these answers."""
    usage = (info.get("internal_states") or [{}])[0].get("memory_usage") or {}
    swa = usage.get("token_capacity_swa")
    if not swa or not isinstance(info.get("max_total_num_tokens"), int):
        raise PlanError(f"--check {source}: this engine has no SWA pool; give one of a hybrid sliding-window model")
    hold = _HOLD.search(metrics)
    return Engine(
        full=info["max_total_num_tokens"],
        swa=int(swa),
        ratio=float(info["swa_full_tokens_ratio"]),
        page=int(info["page_size"]),
        chunk=int(info["chunked_prefill_size"]),
        running=int(
            info["internal_states"][0].get("effective_max_running_requests_per_dp") or info["max_running_requests"]
        ),
        drafts=drafts.of_fields(info),
        hold=float(hold[1]) if hold and float(hold[1]) else None,
    )


def compare(plan: Plan, engine: Engine, *, own_budget: bool = False) -> list[Row]:
    """Number by number. `own_budget`: the plan's bytes for KV are the engine's, so there is nothing to compare."""
    cost, given = plan.model.cost, plan.serving
    same = [
        _row("page size", given.page, engine.page),
        _row("prefill chunk", given.chunk, engine.chunk),
        _row("most running requests", given.running, engine.running),
        _row("SWA pool at its ratio", int(engine.full * engine.ratio) // engine.page * engine.page, engine.swa),
    ]
    if given.ahead != ALONE or engine.drafts.algorithm:
        same.append(_row("reserved ahead for drafts", given.ahead, engine.drafts.ahead(engine.page)))
    taken = engine.full * (cost.full_bytes + cost.draft_bytes) + engine.swa * cost.swa_bytes
    same.append(Row("bytes of both pools", f"at most {plan.budget:,}", f"{taken:,}", taken <= plan.budget * (1 + NEAR)))
    if engine.found and not own_budget:
        had = engine.budget(cost)
        same.append(Row("bytes for KV", f"{plan.budget:,}", f"{had:,}", abs(had / plan.budget - 1) <= NEAR))
    if engine.sizes:  # its log rounds K and V to 0.01 GB each
        for what, tokens, bytes_, said in (
            ("full pool, GB", engine.full, cost.full_bytes, engine.sizes[0]),
            ("SWA pool, GB", engine.swa, cost.swa_bytes, engine.sizes[1]),
        ):
            size = (tokens + engine.page) * bytes_ / GIB  # one page more, for writes that nobody reads
            same.append(Row(what, f"{size:.2f}", f"{said:.2f}", abs(size - said) <= 0.011))
    if engine.hold:
        stock = hold(cost.window, engine.page, islands=False) + given.drafted
        same.append(Row("SWA held a request", f"below {stock:,}, stock's", f"{engine.hold:,.0f}", engine.hold < stock))
    return same


def _row(what: str, planned: int, engine: int) -> Row:
    return Row(what, f"{planned:,}", f"{engine:,}", planned == engine)


def _ask(url: str) -> Engine:
    answer = _get(f"{url}/server_info")
    try:
        return of_answers(json.loads(answer), _get(f"{url}/metrics", optional=True), url)
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        if isinstance(fault, PlanError):
            raise
        raise PlanError(f"--check {url}: /server_info is not SGLang's; give the engine's own address") from None


def _get(url: str, *, optional: bool = False) -> str:
    """A body; empty when an optional one is not served (an engine without --enable-metrics)."""
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:  # noqa: S310 - http or https, checked by `read`
            return str(answer.read().decode("utf-8", "replace"))
    except (OSError, ValueError) as fault:
        if optional and isinstance(fault, urllib.error.HTTPError):
            return ""
        reason = getattr(fault, "reason", None) or fault
        raise PlanError(f"--check {url}: {reason}; give a boot's log, or the http://HOST:PORT of an engine") from None
