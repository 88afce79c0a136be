"""How long one step of an engine takes: a roofline, that is the slower of moving its bytes and doing its arithmetic.

It is a model, not a measurement. Its ratios come from hardware and model figures; its one fitted number, `scale`, puts
arm A of the seed (lazy, r 0.32, 96 requests) on the seed's 3,995 tokens/s, and everything else follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from island_engine.sizing import Geometry


@dataclass(frozen=True)
class Device:
    """What a kernel reaches of the data sheet's figures."""

    bandwidth: float  # bytes/s of device memory
    flops: float  # FLOP/s of the weights' type


# Data sheets: H100 SXM 3.35 TB/s and 1,979 TFLOP/s fp8, H200 SXM 4.8 TB/s and the same arithmetic. Reached: 80 % of
# the bandwidth; 35 % of the arithmetic, because a mixture of experts multiplies small matrices.
H100 = Device(bandwidth=0.8 * 3.35e12, flops=0.35 * 1.98e15)
H200 = Device(bandwidth=0.8 * 4.8e12, flops=0.35 * 1.98e15)


@dataclass(frozen=True)
class Roofline:
    """One model on one device. Lengths in tokens, results in seconds."""

    device: Device
    geometry: Geometry
    weights: float  # bytes that a step streams; a batch of some dozen tokens touches every expert
    active: float  # parameters that one token multiplies
    attention_flop: float  # FLOP per query and key, all full-attention layers together
    overhead: float  # seconds per step: launch gaps, sampling, the draft model's forward
    scale: float

    def decode(self, lengths: Sequence[int], block: int = 1) -> float:
        """A step that verifies `block` tokens of each request; `lengths`: committed tokens of each."""
        tokens, context = len(lengths) * block, sum(lengths)
        seen = sum(min(length, self.geometry.window) for length in lengths)
        streamed = context * (self.geometry.full_bytes + self.geometry.draft_bytes) + seen * self.geometry.swa_bytes
        attention = block * context * self.attention_flop
        return self._step(tokens, max(streamed / self.device.bandwidth, attention / self.device.flops))

    def prefill(self, chunks: Iterable[tuple[int, int]]) -> float:
        """A prefill step; `chunks`: of each request its new tokens and the tokens before them."""
        work = list(chunks)
        attention = sum(new * (before + new / 2) for new, before in work) * self.attention_flop
        return self._step(sum(new for new, _ in work), attention / self.device.flops)

    def _step(self, tokens: int, attention: float) -> float:
        multiply = max(self.weights / self.device.bandwidth, tokens * 2 * self.active / self.device.flops)
        return self.scale * (self.overhead + multiply + attention)
