"""Exact mode: the bits that a token gets do not depend on what is computed with it (--enable-deterministic-inference).

A GEMM sums in an order that depends on its shape, so a row's result depends on how many rows there are: on the batch,
on where a prefill is cut, on how much of it was a cache hit. Here every GEMM has exactly TILE rows;
`platform.attention` takes every query as a problem of its own; the rest of a model works row by row. SGLang's own way
to the same end is Triton kernels (batch_invariant_ops), which no CPU runs.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as functional
from sglang.srt.layers.logits_processor import LogitsProcessor
from sglang.srt.layers.quantization.unquant import UnquantizedEmbeddingMethod, UnquantizedLinearMethod
from sglang.srt.runtime_context import get_exec

if TYPE_CHECKING:
    from collections.abc import Callable

TILE = 16  # rows; a decode step of up to 16 requests is one GEMM


class TiledLinear(UnquantizedLinearMethod):
    """A linear layer, TILE rows at a time."""

    def apply(self, layer: Any, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """[..., in] to [..., out]."""
        return by_tiles(lambda tile: functional.linear(tile, layer.weight, bias), x)


def tiled_head(original: Callable[..., torch.Tensor], hidden: torch.Tensor, *args: Any, **_: Any) -> torch.Tensor:
    """The output layer: hidden [tokens, hidden size] to logits [tokens, vocabulary]; no buffer to write them to."""
    return by_tiles(lambda tile: original(tile, *args), hidden)


def by_tiles(gemm: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """`gemm` on TILE rows of x [..., in] at a time, the last ones padded."""
    rows = x.reshape(-1, x.shape[-1])
    padded = functional.pad(rows, (0, 0, 0, -len(rows) % TILE))
    out = torch.cat([gemm(tile) for tile in padded.split(TILE)])
    return out[: len(rows)].reshape(*x.shape[:-1], out.shape[-1])


def enable(runner: Any) -> None:
    """REPLACE hook of the model runner: its model is loaded, nothing has been computed."""
    if not get_exec().deterministic.enable_deterministic_inference:
        return
    torch.set_num_threads(1)  # a sum that threads share depends on how many take part
    for name, layer in runner.model.named_modules():
        method = getattr(layer, "quant_method", None)
        if type(method) is UnquantizedLinearMethod:
            layer.quant_method = TiledLinear()
        elif isinstance(layer, LogitsProcessor):
            layer._compute_lm_head = partial(tiled_head, layer._compute_lm_head)  # noqa: SLF001 - see touchpoints
        elif method is not None and type(method) is not UnquantizedEmbeddingMethod:
            raise ValueError(
                "--enable-deterministic-inference on a CPU knows plain linear layers only, and "
                f"{name} has {type(method).__name__}: drop it"
            )
