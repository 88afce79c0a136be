"""What is wrong with spec.engine.args, said in the status before anything boots.

Flags that islands do not go with count only while islands are on: the stock half takes them all. The engine has the
same table, with reasons (docs/engine.md), and the last word: it also knows what SGLang makes of a flag.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from island_engine import flags

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from island_operator.core.model import Object

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
    """The first flag that islands refuse, as a sentence."""
    for flag, value in flags.said(arguments):
        for full in flags.meant(flag, (*REFUSED, *ALIASES)):
            broken, use = REFUSED[ALIASES.get(full, full)]
            if broken(value):
                said = flag if full == flag else f"{flag} (short for {full})"
                return f"spec.engine.args: {said} does not go with islands: {use}, or set spec.islands.enabled to false"
    return None


def ungateable(arguments: Sequence[str]) -> str | None:
    """A flag with which no gate ever says PASS, as a sentence: it would be PacedEngine at every attempt."""
    if flags.has(arguments, "--pace"):
        return "spec.engine.args: --pace serves dummies, which no gate can compare: set spec.gate.enabled to false"
    return None


def starved(parts: Object) -> str | None:
    """More devices than a pod of these parts of a revision asks for, as a sentence: such an engine dies at its boot."""
    asked, has = parts["accelerator"], _granted(parts)
    degrees = flags.degrees(parts["engine"].get("args", ()))
    if not has or degrees is None or (takes := prod(degrees.values())) <= has:
        return None
    said = " ".join(f"{flag} {degree}" for flag, degree in degrees.items())
    told = f"spec.engine.args: {said} takes {takes} of {asked['resource']}, and a pod has {has}"
    return f"{told}: set spec.accelerator.count to {takes}, or lower it"


def _granted(parts: Object) -> int:
    """Devices of a pod: spec.accelerator.count, unless spec.podTemplate says otherwise. 0: none, or not to be told."""
    asked = parts["accelerator"]
    containers = ((parts.get("podTemplate") or {}).get("spec") or {}).get("containers") or ()
    for container in containers:
        if container.get("name") == "engine":
            limits = (container.get("resources") or {}).get("limits") or {}
            if any("/" in name for name in limits):
                return int(limits[asked["resource"]]) if str(limits.get(asked["resource"])).isdecimal() else 0
    return int(asked.get("count", 1))
