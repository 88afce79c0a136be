"""How things are written: columns and ages as kubectl has them, the pair in words, one way to the terminal."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from island_operator.core.clock import elapsed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from island_operator.cli.kubectl.model import Pair

GAP = 3  # spaces between columns


def console() -> Console:
    """Standard output: rich leaves colours out where it is no terminal and where NO_COLOR is set."""
    return Console(highlight=False, soft_wrap=True)


def show(lines: Iterable[Text | str]) -> None:
    """Print lines as they are: a terminal wraps what is too long, a pipe gets all of it."""
    out = console()
    for line in lines:
        out.print(line if isinstance(line, Text) else Text(line))


def show_json(value: Any) -> None:
    """One JSON document."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def columns(rows: Sequence[Sequence[Text | str]]) -> list[Text]:
    """Rows as aligned lines; the last column is not padded."""
    cells = [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in rows]
    widths = [max(cell_len(cell.plain) for cell in column) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        line = Text()
        for cell, width in zip(row[:-1], widths, strict=False):
            line.append_text(cell).append(" " * (width - cell_len(cell.plain) + GAP))
        line.append_text(row[-1])
        line.rstrip()
        lines.append(line)
    return lines


def labelled(name: str, told: Text | str, width: int) -> Text:
    """A line of facts: its name in bold, padded to `width` cells; no name below the first line of several."""
    return Text.assemble((f"{f'{name}:' if name else '':{width}}", "bold"), told)


def age(since: str | None, now: str) -> str:
    """As kubectl's column AGE: 42s, 5m30s, 12m, 3h5m, 30h, 9d; empty where it is not known."""
    return duration(elapsed(since, now)) if since else ""


def duration(seconds: float) -> str:
    """Seconds as kubectl writes them, in at most two units."""
    left = max(0, int(seconds))
    minutes, hours, days = left // 60, left // 3600, left // 86400
    if left < 120:
        return f"{left}s"
    if minutes < 10:
        return f"{minutes}m{left % 60}s" if left % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    return f"{hours}h" if hours < 48 else f"{days}d"


def in_words(pair: Pair) -> str:
    """The pair that pods get."""
    pool = "one unified pool" if pair.ratio is None else f"ratio {pair.ratio}, {pair.max_total_tokens:,} tokens"
    return f"islands {'on' if pair.islands else 'off'}, {pool}"


def with_cap(pair: Pair) -> str:
    """The same, with how many requests may run."""
    cap = f", at most {pair.max_running_requests:,} running" if pair.max_running_requests else ""
    return in_words(pair) + cap
