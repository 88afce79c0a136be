"""Every place where we touch SGLang is where it was read, and says what it said then (island_engine/touchpoints.py)."""

from __future__ import annotations

import hashlib
import importlib.metadata
import inspect
import json
import pkgutil
from pathlib import Path
from typing import Any

import pytest

from island_engine import SGLANG_VERSION, touchpoints
from island_engine.platform import speculation

DIGESTS = Path(__file__).with_name("touchpoints.json")  # target -> sha256 of its source in SGLANG_VERSION
speculation.stand_in()  # a worker of SGLang's imports sgl_kernel, which has no wheel for CPUs
ALL = (*touchpoints.HOOKED, *touchpoints.USED)


def source(target: str) -> tuple[str, str, int]:
    """Text, file and first line of a definition, hooks peeled off."""
    thing: Any = pkgutil.resolve_name(target)
    if isinstance(thing, property):
        thing = thing.fget
    if not isinstance(thing, type):
        thing = inspect.unwrap(thing)
    lines, first = inspect.getsourcelines(thing)
    return "".join(lines), inspect.getsourcefile(thing) or "", first


def test_the_release_is_the_one_that_was_read() -> None:
    assert importlib.metadata.version("sglang") == SGLANG_VERSION


@pytest.mark.parametrize("touch", ALL, ids=lambda touch: touch.name)
def test_it_is_where_it_was_and_says_what_it_said(touch: touchpoints.Touch) -> None:
    text, file, line = source(touch.target)
    assert (file.rpartition("/sglang/")[2].removeprefix("srt/"), line) == (touch.file, touch.line)
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert digest == json.loads(DIGESTS.read_text())[touch.target], (
        f"{touch.target} has changed ({touch.why}): read it again, then put {digest} into {DIGESTS.name}"
    )


def test_no_digest_is_left_over() -> None:
    assert set(json.loads(DIGESTS.read_text())) == {touch.target for touch in ALL}
