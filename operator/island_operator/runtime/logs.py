"""Logs: one JSON object per line (or plain text), each naming the resource it is about."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_subject: ContextVar[object] = ContextVar("subject", default="")


@contextlib.contextmanager
def about(subject: object) -> Iterator[None]:
    """Every line logged inside carries `resource: <subject>`."""
    token = _subject.set(subject)
    try:
        yield
    finally:
        _subject.reset(token)


class JsonFormatter(logging.Formatter):
    """{"time", "level", "logger", "resource", "message", "error"}; absent where empty."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "resource": str(_subject.get()),
            "message": record.getMessage(),
            "error": self.formatException(record.exc_info) if record.exc_info else "",
        }
        return json.dumps({name: value for name, value in line.items() if value}, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """The same for eyes."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback if there is one."""
        subject = str(_subject.get())
        where = f"[{subject}] " if subject else ""
        line = f"{self.formatTime(record, '%H:%M:%S')} {record.levelname:<7} {where}{record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def configure(style: str) -> None:
    """All loggers to stderr; `style` is json or text. kopf's line per event is silenced."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for noisy in ("kopf", "aiohttp.access"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
