"""Engine arguments as SGLang's parser (argparse) reads them: what the operator, the planner, the gate and the launcher
want to know before an engine boots. Pure standard library.

A flag may be any beginning of its name. What is short for several flags of SGLang is read as each of ours among them:
SGLang refuses it, so that no engine runs with it. The last value of a flag counts.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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


def word(item: str) -> str:
    """The flag that an argument begins with, or the argument itself."""
    return item.split(" ", 1)[0].split("=", 1)[0]


def said(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Flags with what follows them: `--flag value`, `--flag=value`, or both words in one item, which the launcher will
    refuse. Words that are no flags come too, each as one: `meant` finds nothing in them.
    """
    for item, following in pairwise([*arguments, ""]):
        flag = word(item)
        yield flag, item[len(flag) + 1 :].strip() or following


def meant(flag: str, names: Iterable[str]) -> list[str]:
    """Those of the flags `names` that a word is, or begins."""
    begun = [name for name in names if len(flag) > len("--") and name.startswith(flag)]
    return [flag] if flag in begun else begun


def values(arguments: Sequence[str], *names: str) -> list[str]:
    """What follows a flag of these names, in order; for a switch, whatever comes after it."""
    return [value for flag, value in said(arguments) if meant(flag, names)]


def value(arguments: Sequence[str], *names: str) -> str | None:
    """What counts: the last of `values`, None without one."""
    found = values(arguments, *names)
    return (found[-1] or None) if found else None


def has(arguments: Sequence[str], *names: str) -> bool:
    """Whether a flag of these names is there."""
    return bool(values(arguments, *names))


def degrees(arguments: Sequence[str]) -> dict[str, int] | None:
    """Every degree of parallelism that is asked for, by the first of its names; None when it is not ours to say."""
    if has(arguments, *PLACED):
        return None
    attention = has(arguments, WITHIN_TP) and value(arguments, *ATTENTION) in {None, "1"}
    asked = {
        degree: last
        for degree, names in DEGREES.items()
        if (last := value(arguments, *names)) is not None and not (degree == "--dp-size" and attention)
    }
    if not all(last.isdecimal() for last in asked.values()):
        return None  # SGLang's to refuse
    return {degree: int(last) for degree, last in asked.items()}


def devices(arguments: Sequence[str]) -> int:
    """How many accelerators one engine takes; 0 when it is not ours to say."""
    asked = degrees(arguments)
    return 0 if asked is None else prod(asked.values())
