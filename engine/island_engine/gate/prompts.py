"""The user's own prompts: a text file, one prompt a line, plain or a JSON string (which may hold newlines)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from island_engine.gate.outcome import error

if TYPE_CHECKING:
    from pathlib import Path


def read(path: Path) -> tuple[str, ...]:
    """The prompts of a file, empty lines left out. Concludes ERROR BadProbes, naming the line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as fault:
        raise error("BadProbes", f"--prompts {path}: {fault}: give a readable UTF-8 file, one prompt a line") from fault
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            prompt = json.loads(line) if line.startswith('"') else line
        except ValueError as fault:
            raise error("BadProbes", f"--prompts {path}, line {number}: {fault}: close the JSON string") from fault
        found.append(prompt)
    if not found:
        raise error("BadProbes", f"--prompts {path} holds no prompt: give one a line, or leave the flag out")
    return tuple(found)
