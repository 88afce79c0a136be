"""The table of the self-test: for a terminal, and in docs/gate.md.

`python -m island_engine.gate.table REPORT.json` fills the document from the report of a whole self-test.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from island_engine.islands.mutations import TABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

DOCUMENT = Path("docs/gate.md")
BEGIN, END = "<!-- self-test: made by island_engine.gate.table -->", "<!-- /self-test -->"


def lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A line for every planted fault: what became of it and what told, or why it is harmless."""
    wide = max((len(row["mutation"]) for row in rows), default=0)
    return [f"{row['mutation']:{wide}}  {row['outcome']:16}  {_told(row)}" for row in rows]


def _told(row: dict[str, Any]) -> str:
    return f"{row['caught_by']}: {row['how']}" if row["caught_by"] else str(row["expected"])


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """The same for the document. ValueError when it is not a whole self-test that passed."""
    if [row["mutation"] for row in rows] != list(TABLE):
        raise ValueError("these are not the rows of a whole self-test of this source: run it without --mutation")
    bad = [row["mutation"] for row in rows if row["outcome"] not in ("caught", "harmless")]
    if bad:
        raise ValueError(f"{', '.join(bad)}: not caught by the class that should, nor proved harmless")
    head = [
        "| fault | what it does | fired | outcome | what told, or why no answer can change |",
        "|---|---|---|---|---|",
    ]
    body = [f"| `{r['mutation']}` | {r['what']} | {r['fired']} | {r['outcome']} | {_told(r)} |" for r in rows]
    return "\n".join([*head, *body]) + "\n"


def main(argv: Sequence[str]) -> int:
    """Fill the document."""
    try:
        (report,) = argv
        rows = json.loads(Path(report).read_text())["mutations"]
        before, rest = DOCUMENT.read_text().split(BEGIN)
        after = rest.split(END)[1]
        DOCUMENT.write_text(f"{before}{BEGIN}\n{markdown(rows)}{END}{after}")
    except (OSError, ValueError, KeyError, IndexError) as fault:
        print(f"island_engine.gate.table REPORT.json: {fault}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
