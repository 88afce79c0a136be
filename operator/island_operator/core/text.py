"""Foreign text (log lines, kubelet messages) made fit for a status: one bounded line, control characters escaped."""

from __future__ import annotations

from functools import cache

LIMIT = 300  # characters of foreign text in one message


def escaped(text: str, limit: int = LIMIT) -> str:
    """One printable line of at most `limit` characters."""
    line = text[: limit + 1]
    if not line.isprintable():  # rare, and every string of every status comes through here
        line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    return cut(line, limit)


def cut(text: str, limit: int) -> str:
    """At most `limit` characters, of whole words, with an ellipsis for the others."""
    if len(text) <= limit:
        return text
    head = text[: limit - 3]
    words = head.rpartition(" ")[0]
    return f"{words if len(words) > limit // 2 else head}..."


def last_line(text: str, limit: int = LIMIT) -> str:
    """The last line that says anything; of a traceback that is the error itself."""
    lines = [line.strip() for line in text[-8192:].splitlines() if line.strip()]
    return escaped(lines[-1], limit) if lines else ""


@cache  # of the fields of our records
def camel(name: str) -> str:
    """A field's name as JSON spells it: started_at is startedAt."""
    head, *tail = name.split("_")
    return head + "".join(part.title() for part in tail)
