"""The geometry that the in-process benches share, and its flags. Sizes in tokens."""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from typing import Any

from island_engine import guards


@dataclass(frozen=True)
class Geometry:
    """Gemma-4-26B-A4B as the seed deploys it."""

    page: int = 64
    window: int = 1024
    chunk: int = 16384
    tokens: int = 980_000  # in the full pool
    prompt: int = 32768
    output: int = 16384

    def as_json(self, **more: Any) -> dict[str, Any]:
        """For the result."""
        return asdict(self) | more

    def swa(self, ratio: float) -> int:
        """Tokens in the SWA pool: whole pages."""
        return int(ratio * self.tokens) // self.page * self.page


HELP = {
    "page": "tokens per KV page",
    "window": "sliding window",
    "chunk": "prefill chunk",
    "tokens": "full pool",
    "prompt": "prompt of a request",
    "output": "generation of a request",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--page, --window, --chunk, --tokens, --prompt, --output."""
    for name, text in HELP.items():
        default = getattr(Geometry, name)
        parser.add_argument(
            f"--{name}", type=positive, default=default, metavar="N", help=f"{text}, tokens (default {default})"
        )
    parser.add_argument("--sync", action="store_true", help="without SGLang's overlap scheduling")


def positive(text: str) -> int:
    """A whole number above 0."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text} is not a positive whole number")
    return int(text)


def given(options: argparse.Namespace) -> Geometry:
    """What the flags say; RefusedError when it cannot be."""
    geometry = Geometry(**{name: getattr(options, name) for name in HELP})
    for name in ("window", "chunk"):
        size = getattr(geometry, name)
        if size % geometry.page:
            raise guards.RefusedError(f"--{name} {size}: use a multiple of --page {geometry.page}")
    if geometry.tokens < geometry.prompt + geometry.output:
        raise guards.RefusedError(f"--tokens {geometry.tokens}: use at least --prompt plus --output")
    return geometry
