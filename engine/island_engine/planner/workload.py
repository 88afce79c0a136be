"""What an engine is asked for: lengths, how many at a time, and how much of a prompt the cache has already.

A running request occupies, on average over its time in the batch, its prompt, what it has decoded, E[o^2]/2E[o] of the
outputs o, and what admission keeps free for the rest, at most CLIP (design: The island engine, Planner).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from island_engine.planner.errors import PlanError

if TYPE_CHECKING:
    from pathlib import Path

CLIP = 4_096  # output tokens that SGLang's admission reserves of a running request at most
INPUTS = ("prompt_tokens", "input_tokens", "input_length", "isl")
OUTPUTS = ("completion_tokens", "output_tokens", "output_length", "osl")


@dataclass(frozen=True)
class Workload:
    """Lengths in tokens. `decoded`: what a running request has generated, on average; `reuse`: share of the prompts'
    tokens that were computed before; `shared`: a prefix that all requests have in common; `concurrency`: most
    requests outstanding at a time, None when there is always one more.
    """

    isl: float
    osl: float
    decoded: float
    reuse: float = 0.0
    shared: int = 0
    concurrency: int | None = None

    @property
    def length(self) -> float:
        """L, full-pool tokens that one running request occupies, with what it shares."""
        return self.isl + self.decoded + min(CLIP, self.decoded)

    @property
    def own(self) -> float:
        """Those of L that are no other request's."""
        return self.length - self.shared


def of_means(isl: float, osl: float, **more: Any) -> Workload:
    """Lengths uniform from none to twice the mean, as SGLang's bench_serving draws them: decoded is 2/3 of the mean."""
    return Workload(isl, osl, osl * 2 / 3, **more)


def of_log(path: Path, reuse: float | None = None, **more: Any) -> Workload:
    """The workload of a request log, one JSON object a line: SGLang's (--log-requests-format json), an OpenAI API's
    `usage`, or a trace with input_length and output_length. Other lines are passed over. PlanError names the line.
    """
    lengths = list(_lengths(path))
    outputs = sum(out for _, out, _ in lengths)
    prompts = sum(tokens for tokens, _, _ in lengths)
    if not outputs or not prompts:
        raise PlanError(
            f"--requests {path}: no line has both {INPUTS[0]} and {OUTPUTS[0]}; give one JSON object a line with both"
        )
    # Who generates longer is in the batch for longer, so prompts count by the outputs that they go with.
    isl = sum(tokens * out for tokens, out, _ in lengths) / outputs
    decoded = sum(out * out for _, out, _ in lengths) / 2 / outputs
    if reuse is None:
        reuse = sum(cached for _, _, cached in lengths) / prompts
    return Workload(isl, outputs / len(lengths), decoded, reuse, **more)


def _lengths(path: Path) -> list[tuple[int, int, int]]:
    """Of each request its prompt, its output and what of the prompt was cached."""
    found = []
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    said = json.loads(line)
                except ValueError:
                    raise PlanError(f"--requests {path}: line {number} is not JSON; give one object a line") from None
                tokens, out = _first(said, INPUTS), _first(said, OUTPUTS)
                if tokens is not None and out is not None:
                    found.append((tokens, out, min(tokens, _first(said, ("cached_tokens",)) or 0)))
    except (OSError, UnicodeDecodeError) as fault:
        why = getattr(fault, "strerror", None) or "is not text"
        raise PlanError(f"--requests {path}: {why.lower()}; give a request log with one JSON object a line") from None
    return found


def _first(said: Any, names: tuple[str, ...]) -> int | None:
    """A count under one of the names, here or further in."""
    if not isinstance(said, dict):
        return None
    for name in names:
        if isinstance(said.get(name), int) and said[name] >= 0:
            return int(said[name])
    return next((found for inner in said.values() if (found := _first(inner, names)) is not None), None)
