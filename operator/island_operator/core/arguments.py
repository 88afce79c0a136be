"""What is wrong with spec.engine.args, said in the status before anything boots.

Flags that islands do not go with count only while islands are on: the stock half takes them all. The engine has the
same table, with reasons (docs/engine.md), and the last word: it also knows what SGLang makes of a flag.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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

# What SGLang 0.5.23 multiplies into the devices of one engine (compute_world_size of its server_args); attention DP,
# and the other degrees, are within the first.
DEGREES = {
    "--tp-size": ("--tp-size", "--tensor-parallel-size"),
    "--dp-size": ("--dp-size", "--data-parallel-size"),
    "--pp-size": ("--pp-size", "--pipeline-parallel-size"),
}
ATTENTION = ("--attn-dp-size", "--attention-data-parallel-size")
WITHIN_TP = "--enable-dp-attention"  # without ATTENTION it makes --dp-size the degree of attention DP
PLACED = ("--nnodes", "--base-gpu-id", "--gpu-id-step")  # whoever says these knows the devices better
_SHORTEST = len("--tp")


def refused(arguments: Sequence[str]) -> str | None:
    """The first flag that islands refuse, as a sentence."""
    for flag, value in _said(arguments):
        for full in _meant(flag):
            broken, use = REFUSED[ALIASES.get(full, full)]
            if broken(value):
                said = flag if full == flag else f"{flag} (short for {full})"
                return f"spec.engine.args: {said} does not go with islands: {use}, or set spec.islands.enabled to false"
    return None


def ungateable(arguments: Sequence[str]) -> str | None:
    """A flag with which no gate ever says PASS, as a sentence: it would be PacedEngine at every attempt."""
    if any(flag == "--pace" for flag, _ in _said(arguments)):
        return "spec.engine.args: --pace serves dummies, which no gate can compare: set spec.gate.enabled to false"
    return None


def starved(parts: Object) -> str | None:
    """More devices than a pod of these parts of a revision asks for, as a sentence: such an engine dies at its boot."""
    asked, arguments = parts["accelerator"], parts["engine"].get("args", ())
    has = _granted(parts)
    if not has or any(_values(arguments, (flag,)) for flag in PLACED):
        return None
    attention = _values(arguments, (WITHIN_TP,)) and set(_values(arguments, ATTENTION)[-1:]) <= {"1"}
    said, takes = [], 1
    for degree, names in DEGREES.items():
        values = _values(arguments, names)
        if not values or (degree == "--dp-size" and attention):
            continue
        if not values[-1].isdecimal():
            return None  # SGLang's to refuse
        said.append(f"{degree} {values[-1]}")
        takes *= int(values[-1])
    if takes <= has:
        return None
    told = f"spec.engine.args: {' '.join(said)} takes {takes} of {asked['resource']}, and a pod has {has}"
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


def _said(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Flags with what follows them: `--flag value`, `--flag=value`, or both words in one item."""
    for item, following in pairwise([*arguments, ""]):
        flag = item.split(" ", 1)[0].split("=", 1)[0]
        yield flag, item[len(flag) + 1 :].strip() or following


def _values(arguments: Sequence[str], names: Sequence[str]) -> list[str]:
    """What follows a flag, under any of its names and whatever argparse takes for short."""
    return [v for flag, v in _said(arguments) if len(flag) >= _SHORTEST and any(n.startswith(flag) for n in names)]


def _meant(flag: str) -> list[str]:
    """The flags of the table that it is, or abbreviates as argparse lets it. No flag of SGLang 0.5.23 begins one of
    them, so that a beginning of one is short for it, or for several, and then no engine boots with it either.
    """
    if flag in REFUSED or flag in ALIASES:
        return [flag]
    return [full for full in (*REFUSED, *ALIASES) if len(flag) > len("--") and full.startswith(flag)]
