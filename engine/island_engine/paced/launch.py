"""SGLang's flags of a paced engine. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from island_engine.paced.profiles import Profile

ALGORITHM = "ISLAND_BLOCK"


def arguments(profile: Profile) -> list[str]:
    """No weights, no device, and the profile's speculation."""
    flags = ["--load-format", "dummy", "--device", "cpu", "--dtype", "bfloat16", "--mem-fraction-static", "0.5"]
    if profile.block > 1:
        flags += ["--speculative-algorithm", ALGORITHM, "--speculative-num-draft-tokens", str(profile.block)]
        flags += ["--speculative-num-steps", "1", "--speculative-eagle-topk", "1"]
    return flags
