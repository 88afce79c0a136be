"""Flags in spec.engine.args that islands do not go with: said in the status before a gate boots, and only while islands
are on: the stock half takes them all. The engine has the same table, with reasons (docs/engine.md), and the last
word: it also knows what SGLang makes of a flag.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

UNPROVED_DRAFTS = ("DFLASH", "DSPARK", "UNO")
ALIASES = {"--enable-hicache": "--enable-hierarchical-cache", "--pipeline-parallel-size": "--pp-size"}


def _other_than(harmless: str) -> Callable[[str], bool]:
    return lambda value: value != harmless


def _always(_value: str) -> bool:
    return True


REFUSED: dict[str, tuple[Callable[[str], bool], str]] = {  # which values, and what to do; SGLang 0.5.23
    "--enable-hierarchical-cache": (_always, "drop it"),
    "--enable-lmcache": (_always, "drop it"),
    "--enable-flexkv": (_always, "drop it"),
    "--enable-unified-cache-external-linker": (_always, "drop it"),
    "--enable-hisparse": (_always, "drop it"),
    "--disaggregation-mode": (_other_than("null"), "use null"),
    "--enable-pdmux": (_always, "drop it"),
    "--pp-size": (_other_than("1"), "use 1"),
    "--enable-session-radix-cache": (_always, "drop it"),
    "--enable-streaming-session": (_always, "drop it"),
    "--swa-prefix-tails": (_always, "drop it"),
    "--dllm-algorithm": (_always, "drop it"),
    "--decoupled-spec-role": (_other_than("null"), "use null"),
    "--speculative-algorithm": (
        lambda value: value.upper() in UNPROVED_DRAFTS,
        "use EAGLE, EAGLE3, NEXTN, STANDALONE or NGRAM",
    ),
    "--enable-encoder-swa-bounded-replay": (_always, "drop it"),
    "--enable-decoder-swa-bounded-replay": (_always, "drop it"),
}


def refused(arguments: Sequence[str]) -> str | None:
    """The first flag that islands refuse, as a sentence. `--flag value`, `--flag=value`, or both words in one item."""
    for item, following in pairwise([*arguments, ""]):
        flag = item.split(" ", 1)[0].split("=", 1)[0]
        value = item[len(flag) + 1 :] or following
        for full in _meant(flag):
            broken, use = REFUSED[ALIASES.get(full, full)]
            if broken(value):
                said = flag if full == flag else f"{flag} (short for {full})"
                return f"spec.engine.args: {said} does not go with islands: {use}, or set spec.islands.enabled to false"
    return None


def ungateable(arguments: Sequence[str]) -> str | None:
    """A flag with which no gate ever says PASS, as a sentence: it would be PacedEngine at every attempt."""
    if any(item.split(" ", 1)[0].split("=", 1)[0] == "--pace" for item in arguments):
        return "spec.engine.args: --pace serves dummies, which no gate can compare: set spec.gate.enabled to false"
    return None


def _meant(flag: str) -> list[str]:
    """The flags of the table that it is, or abbreviates as argparse lets it. No flag of SGLang 0.5.23 begins one of
    them, so that a beginning of one is short for it, or for several, and then no engine boots with it either.
    """
    if flag in REFUSED or flag in ALIASES:
        return [flag]
    return [full for full in (*REFUSED, *ALIASES) if len(flag) > len("--") and full.startswith(flag)]
