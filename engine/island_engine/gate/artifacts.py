"""The files a gate leaves. A report appears whole or not at all, and never outlives the start of the next run."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict
from typing import IO, TYPE_CHECKING, Any

from island_engine.gate import page
from island_engine.gate.probes import TIMED
from island_engine.gate.report import SCHEMA, Summary

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from island_engine.gate.case import ClassResult, Conclusion
    from island_engine.gate.client import Answer
    from island_engine.gate.compare import Recording, Serve

REPORT, SERVES, PAGE = "report.json", "serves.jsonl", "report.html"


def prepare(directory: Path) -> IO[str]:
    """Make the directory, drop what an earlier run concluded, and open serves.jsonl. OSError when it cannot."""
    directory.mkdir(parents=True, exist_ok=True)
    for earlier in (directory / REPORT, directory / PAGE, *directory.glob("engine-*.log")):
        earlier.unlink(missing_ok=True)
    return (directory / SERVES).open("w", encoding="utf-8")


def write_serve(file: IO[str], serve: Serve, answer: Answer, seconds: float) -> None:
    """One line per serve, on disk before the next one starts."""
    line = {
        "arm": serve.arm,
        "class": serve.probe.cls,
        "probe": serve.probe.name,
        "expect": serve.probe.expect,
        "input_length": serve.input_length,
        "input_sha256": serve.input_hash,
        "cached_tokens": serve.cached_tokens,
        "output": serve.output,
        "top": answer.top,
        "retractions": serve.retractions,
        "steps": serve.steps,
        "batch": serve.batch,
        "seconds": round(seconds, 4),
    }
    file.write(json.dumps(line, separators=(",", ":")) + "\n")
    file.flush()


def report_body(
    summary: Summary, conclusion: Conclusion, seen: Recording, extra: Mapping[str, Any], times: Mapping[str, Any]
) -> dict[str, Any]:
    """The whole report. Only `times` and `summary.seconds` differ between two runs of the same seed."""
    return {
        "schema": SCHEMA,
        "summary": asdict(summary),
        **extra,
        "classes": [_class(c) for c in conclusion.classes if c.name not in TIMED],
        "arms": [
            {
                "name": arm,
                "islands": seen.enabled[arm],
                "geometry": asdict(geometry),
                "serves": len(seen.serves.get(arm, ())),
                "counters": {c: growth for c, growth in seen.counters.get(arm, {}).items() if c not in TIMED},
            }
            for arm, geometry in seen.geometry.items()
        ],
        "times": {
            **times,
            "classes": [_class(c) for c in conclusion.classes if c.name in TIMED],
            "counters": {
                arm: {c: growth for c, growth in classes.items() if c in TIMED}
                for arm, classes in seen.counters.items()
            },
        },
    }


def _class(result: ClassResult) -> dict[str, Any]:
    return {
        "name": result.name,
        "compared": result.compared,
        "tokens": result.tokens,
        "hits": result.hits,
        "retractions": result.retractions,
        "unpaired": [{"probe": probe, "why": why} for probe, why in result.unpaired],
    }


def write_report(directory: Path, body: Mapping[str, Any]) -> None:
    """report.json, which machines read."""
    _replace(directory, REPORT, json.dumps(body, indent=1, sort_keys=True) + "\n")


def write_page(directory: Path, body: Mapping[str, Any]) -> None:
    """report.html, which people read."""
    _replace(directory, PAGE, page.page(body))


def _replace(directory: Path, name: str, text: str) -> None:
    """Replace a file in one step: a reader sees none or all of it, whenever the gate is killed."""
    target, part = directory / name, directory / f".{name}.part"
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(target)
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def last_lines(directory: Path, count: int = 20) -> list[str]:
    """The end of the newest engine's log; empty when none booted."""
    logs = sorted(directory.glob("engine-*.log"), key=lambda log: log.stat().st_mtime)
    with contextlib.suppress(OSError):
        return logs[-1].read_bytes()[-65_536:].decode("utf-8", "replace").splitlines()[-count:] if logs else []
    return []


def write_termination(path: Path, summary: Summary) -> None:
    """What Kubernetes keeps. Written in place, since the kubelet mounts this one file; a cut one does not parse."""
    with path.open("w", encoding="ascii") as file:
        file.write(summary.to_termination())
