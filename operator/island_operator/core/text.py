"""Foreign text (log lines, kubelet messages) made fit for a status: one bounded line, control characters escaped."""

from __future__ import annotations

LIMIT = 300  # characters of foreign text in one message


def escaped(text: str, limit: int = LIMIT) -> str:
    """One printable line of at most `limit` characters."""
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[: limit + 1])
    return line if len(line) <= limit else line[: limit - 3] + "..."


def last_line(text: str, limit: int = LIMIT) -> str:
    """The last line that says anything; of a traceback that is the error itself."""
    lines = [line.strip() for line in text[-8192:].splitlines() if line.strip()]
    return escaped(lines[-1], limit) if lines else ""


def camel(name: str) -> str:
    """A field's name as JSON spells it: started_at is startedAt."""
    head, *tail = name.split("_")
    return head + "".join(part.title() for part in tail)
