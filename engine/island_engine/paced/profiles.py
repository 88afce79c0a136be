"""The engines that can be paced, as data. Pure standard library."""

from __future__ import annotations

from dataclasses import dataclass, replace

from island_engine import guards
from island_engine.paced.roofline import H100, H200, Roofline
from island_engine.sizing import Geometry


@dataclass(frozen=True)
class Profile:
    """One model on one device, with or without speculation. Sizes in tokens."""

    name: str
    what: str
    roofline: Roofline
    block: int  # tokens that a step verifies per request; 1: no speculation
    accept: float  # mean of those that it commits
    swa_per_full: int  # sliding-window layers per full layer of the stand-in model, so that a shared pool splits right


# Gemma 4 26B-A4B, FP8 weights, fp8 KV (seed: The hybrid KV layout): 9.5 KB a token in 5 full layers, 95 KB in 25
# sliding-window layers, 10.24 KB of draft KV; window 1,024; 16 heads of 512 in a full layer; 4e9 active parameters.
_GEOMETRY = Geometry(window=1024, full_bytes=9_500, swa_bytes=95_000, draft_bytes=10_240)
_GEMMA = Roofline(
    device=H100,
    geometry=_GEOMETRY,
    weights=26e9,
    active=4e9,
    attention_flop=4 * 5 * 16 * 512,
    overhead=3e-3,
    scale=1.59,  # fitted, see roofline
)
# Block speculation verifies 16 tokens and commits 8.5 of them (seed: 8.22 to 9.13).
_H100 = Profile("gemma4-26b-h100", "Gemma 4 26B-A4B FP8 on one H100-80GB, block speculation", _GEMMA, 16, 8.5, 5)

PROFILES = {
    profile.name: profile
    for profile in (
        _H100,
        replace(
            _H100,
            name="gemma4-26b-h100-nospec",
            what="Gemma 4 26B-A4B FP8 on one H100-80GB, no speculation",
            roofline=replace(_GEMMA, geometry=replace(_GEOMETRY, draft_bytes=0)),
            block=1,
            accept=1.0,
            swa_per_full=10,
        ),
        replace(
            _H100,
            name="gemma4-26b-h200",
            what="Gemma 4 26B-A4B FP8 on one H200-141GB, block speculation",
            roofline=replace(_GEMMA, device=H200),
        ),
    )
}


def profile(name: str) -> Profile:
    """The profile of that name; RefusedError lists the known ones."""
    if name not in PROFILES:
        raise guards.RefusedError(f"--pace {name} is not a profile: use {', '.join(PROFILES)}")
    return PROFILES[name]
