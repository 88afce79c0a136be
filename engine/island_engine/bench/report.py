"""The JSON object of a benchmark (design: Interfaces, JSON of the benchmarks), how it is checked and how it is shown.

Arms, exactly: `lazy` is the behaviour before SGLang 0.5.16, `stock` is SGLang 0.5.23 as it comes, `release` is stock
with SGLANG_OPT_RELEASE_PREFILL_SWA=1, `unified` is stock with --enable-unified-memory, `islands` and `islands-unified`
are ours on either pool.
"""

from __future__ import annotations

import importlib.metadata
import json
from typing import TYPE_CHECKING, Any

from island_engine import SGLANG_VERSION
from island_engine.picture import ARMS as ARMS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rich.table import Table

WIDTH = 140  # of a table that is not printed to a terminal

_SCHEDULE = (
    "running_mean",
    "running_max",
    "retractions",
    "output_tokens_per_s",
    "latency_mean_s",
    "full_peak",
    "swa_peak",
    "simulated",
)
# Keys that every arm of a bench has; a dotted `*.key` is asked of each of the arm's inner objects (ratio, workload).
KEYS: dict[str, tuple[str, ...]] = {
    "hold": ("hold_mean", "hold_max", "evictable_dead"),
    "admission": (
        "*.sustained",
        "*.bound",
        "*.swa_retractions",
        "*.recomputed",
        "*.prefilled",
        "*.decoded_per_step",
    ),
    "reuse": ("hit_tokens", "decoded_tokens", "recompute_after_retraction"),
    "overhead": ("step_ms", "ours_ms", "insert_us", "match_us", "evict_us"),
    "arms": _SCHEDULE,
    "serving": _SCHEDULE,
    "conservation": ("runs", "leaks"),
    "gate": ("runs", "fails"),
    "best": ("*.ratio", "*.tok_s", "*.e2e_s", "*.running", "*.retractions", "*.recomputed_pct", "*.curve"),
}


def result(bench: str, geometry: Mapping[str, Any], arms: Mapping[str, Any]) -> dict[str, Any]:
    """One benchmark's object. `arms`: per arm what KEYS asks for, and whatever else the bench wants to say."""
    return {
        "bench": bench,
        "sglang": SGLANG_VERSION,
        "plugin": importlib.metadata.version("radix-islands"),
        "geometry": dict(geometry),
        "arms": dict(arms),
    }


def problems(found: Mapping[str, Any]) -> list[str]:
    """What is wrong with an object that claims to be a benchmark's result; empty when nothing is."""
    wrong = [f"no {key}" for key in ("bench", "sglang", "plugin", "geometry", "arms") if key not in found]
    if wrong:
        return wrong
    if found["bench"] not in KEYS:
        return [f"bench {found['bench']}: not one of {', '.join(KEYS)}"]
    if not found["arms"]:
        return ["no arm was measured"]
    for arm, values in found["arms"].items():
        if arm not in ARMS:
            wrong.append(f"arm {arm}: not one of {', '.join(ARMS)}")
        for key in KEYS[found["bench"]]:
            inner = [values] if "." not in key else [one for one in values.values() if isinstance(one, dict)]
            name = key.removeprefix("*.")
            if not inner or any(name not in one for one in inner):
                wrong.append(f"arm {arm}: no {name}")
    return wrong


def lost(found: Mapping[str, Any]) -> list[str]:
    """What a correct result says that must not be: tokens not given back, a planted fault that nobody saw.

    Wherever it stands in an arm: `leaks` (how many, or which), `conserved`, `mutants` and `mutants_caught`.
    """
    wrong = []

    def look(where: str, one: Any) -> None:
        if not isinstance(one, dict):
            return
        if leaks := one.get("leaks"):
            wrong.append(f"{where}: {leaks} leaks" if isinstance(leaks, int) else f"{where}: {'; '.join(leaks)}")
        if one.get("conserved") is False:
            wrong.append(f"{where}: a pool was not as before")
        if one.get("mutants") and not one.get("mutants_caught"):
            wrong.append(f"{where}: none of {one['mutants']} planted faults was caught")
        for name, inner in one.items():
            look(f"{where}, {name}", inner)

    for arm, values in found["arms"].items():
        look(arm, values)
    return wrong


def write(found: Mapping[str, Any], path: Path) -> None:
    """Write the object at once, so that an interrupted bench leaves no half of a result."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.part")
    half.write_text(json.dumps(found, indent=1) + "\n")
    half.replace(path)


def read(path: Path) -> dict[str, Any]:
    """Read a result; ValueError in one sentence when it is none."""
    found = json.loads(path.read_text())
    if not isinstance(found, dict) or (wrong := problems(found)):
        raise ValueError(f"{path}: {wrong[0] if isinstance(found, dict) else 'not a JSON object'}; measure it again")
    return found


def number(value: float, digits: int = 0) -> str:
    """1234567 -> 1,234,567; with `digits` after the point."""
    return f"{value:,.{digits}f}"


def table(title: str, caption: str, columns: list[str]) -> Table:
    """An empty table: the first column names the arm, all others are numbers."""
    from rich.table import Table

    made = Table(title=title, caption=caption, title_justify="left", caption_justify="left", title_style="bold")
    for index, column in enumerate(columns):
        made.add_column(column, justify="right" if index else "left", no_wrap=not index)
    return made
