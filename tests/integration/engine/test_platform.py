"""The CPU platform: fp32 is Hugging Face's greedy decode; in exact mode bits do not depend on what runs beside them.

Four engines, each a fork of this process: fp32 and bf16, as they are and with --enable-deterministic-inference.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from sglang.srt.layers.quantization.unquant import UnquantizedLinearMethod
from sglang.srt.layers.radix_attention import AttentionType, RadixAttention
from support.engine import Answer, Engine, apart

from island_engine import tiny_model
from island_engine.platform import attention, exact

if TYPE_CHECKING:
    from pathlib import Path

PAGE, WINDOW, CHUNK, NEW = 64, tiny_model.WINDOW, 512, 16
LENGTHS = (
    *(1, PAGE - 1, PAGE, PAGE + 1),
    *(WINDOW - 1, WINDOW, WINDOW + 1),
    *(WINDOW + PAGE - 1, WINDOW + PAGE, WINDOW + PAGE + 1, 300),
    *(CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 76),
)
EXACT = "--enable-deterministic-inference"
FLAGS = ("--page-size", str(PAGE), "--chunked-prefill-size", str(CHUNK), "--context-length", "4096")
POOLS = ("--max-total-tokens", "32768", "--swa-full-tokens-ratio", "0.5", "--radix-cache-backend", "islands")

Ways = dict[str, list[Answer]]


def prompt(length: int) -> list[int]:
    rng = random.Random(length)  # noqa: S311 - repeatable on purpose
    return [rng.randrange(4, 512) for _ in range(length)]


PROMPTS = [prompt(length) for length in LENGTHS]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("models") / "tiny-gemma"
    tiny_model.make(path)
    return path


def serve(model: Path, *flags: str) -> Ways:
    """The same prompts, computed in every way that may change a sum's shape."""
    engine = Engine(model, *FLAGS, *POOLS, *flags)
    ways: Ways = {"alone": [], "by four": [], "split": []}
    for ids in PROMPTS:
        engine.flush()
        ways["alone"] += engine.run([ids], NEW)
    for first in range(0, len(PROMPTS), 4):
        engine.flush()
        ways["by four"] += engine.run(PROMPTS[first : first + 4], NEW)
    engine.flush()
    ways["by sixteen"] = engine.run(PROMPTS, NEW)
    ways["hit"] = engine.run(PROMPTS, NEW)
    engine.flush()
    engine.run([ids[: 2 * len(ids) // 3] or ids for ids in PROMPTS], 1)  # cuts a prefill at a page that is no chunk
    for ids in PROMPTS:
        ways["split"] += engine.run([ids], NEW)
    return ways


@pytest.fixture(scope="module")
def fp32(model: Path) -> Ways:
    return apart(serve, model, "--dtype", "float32")


@pytest.fixture(scope="module")
def bf16(model: Path) -> Ways:
    return apart(serve, model, "--dtype", "bfloat16")


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def in_exact_mode(request: pytest.FixtureRequest, model: Path) -> Ways:
    return apart(serve, model, "--dtype", request.param, EXACT)


def differ(ways: Ways, way: str) -> list[int]:
    """Lengths of the prompts whose bits are not those of the request alone."""
    pairs = zip(LENGTHS, ways["alone"], ways[way], strict=True)
    return [length for length, alone, other in pairs if alone.logprobs != other.logprobs]


def test_fp32_is_hugging_face_token_for_token(model: Path, fp32: Ways) -> None:
    from transformers import Gemma4ForCausalLM

    reference = Gemma4ForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    with torch.no_grad():
        wanted = [
            reference.generate(torch.tensor([ids]), max_new_tokens=NEW, do_sample=False, eos_token_id=None)[
                0, len(ids) :
            ]
            for ids in PROMPTS
        ]
    for way, answers in fp32.items():
        assert [answer.tokens for answer in answers] == [tokens.tolist() for tokens in wanted], way
    assert len({tuple(answer.tokens) for answer in fp32["alone"]}) == len(PROMPTS)


def test_what_should_be_a_hit_is_one_and_the_split_is_in_the_middle(fp32: Ways) -> None:
    for length, alone, hit, split in zip(LENGTHS, fp32["alone"], fp32["hit"], fp32["split"], strict=True):
        assert alone.cached == 0
        assert hit.cached >= (length - 1) // PAGE * PAGE - PAGE
        assert split.cached <= 2 * length // 3
    assert fp32["split"][-1].cached >= CHUNK


@pytest.mark.parametrize("way", ["by four", "by sixteen", "hit", "split"])
def test_exact_mode_gives_the_same_bits(in_exact_mode: Ways, way: str) -> None:
    assert all(len(answer.logprobs) == NEW and len(answer.logprobs[0]) == 512 for answer in in_exact_mode["alone"])
    assert differ(in_exact_mode, way) == []
    assert [a.tokens for a in in_exact_mode[way]] == [a.tokens for a in in_exact_mode["alone"]]


def test_without_exact_mode_bits_depend_on_the_batch(fp32: Ways, bf16: Ways) -> None:
    assert differ(fp32, "by sixteen")
    assert differ(bf16, "by sixteen")


# --- how it is computed -------------------------------------------------------------------------------------------


def sdpa_calls(model: Path, *batches: list[list[int]]) -> list[float]:
    """How many a decode step takes, by batch."""
    engine = Engine(model, *FLAGS, *POOLS, "--dtype", "float32")
    sdpa, steps = torch.nn.functional.scaled_dot_product_attention, 4
    calls = 0

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += engine.scheduler.cur_batch_for_debug.forward_mode.is_decode()
        return sdpa(*args, **kwargs)

    torch.nn.functional.scaled_dot_product_attention = counted
    counts = []
    for prompts in batches:
        calls = 0
        engine.run(prompts, 1 + steps)
        counts.append(calls / steps)
    return counts


def test_a_decode_step_of_sixteen_is_one_kernel_call_a_layer(model: Path) -> None:
    """What makes it fast. One long request among short ones costs one more, so that nobody is padded to its length."""
    alike = [prompt(length) for length in range(20, 36)]
    counts = apart(sdpa_calls, model, alike, [*alike[:3], prompt(600)])
    assert counts == [tiny_model.LAYERS, tiny_model.LAYERS + 1]


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 40])
def test_a_tile_is_always_whole(rows: int) -> None:
    x, weight = torch.randn(rows, 8), torch.randn(5, 8)
    seen = []

    def gemm(tile: torch.Tensor) -> torch.Tensor:
        seen.append(tuple(tile.shape))
        return tile @ weight.T

    out = exact.by_tiles(gemm, x)
    assert set(seen) == {(exact.TILE, 8)}
    assert len(seen) == -(-rows // exact.TILE)
    torch.testing.assert_close(out, x @ weight.T)


# --- refusals -----------------------------------------------------------------------------------------------------


class Model(torch.nn.Module):
    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer


def radix_attention(**more: Any) -> RadixAttention:
    return RadixAttention(2, 16, 1.0, 1, 0, **more)


def test_attention_that_it_would_compute_wrongly_is_refused() -> None:
    attention.check(Model(radix_attention()))
    with pytest.raises(ValueError, match="layer is not causal self-attention"):
        attention.check(Model(radix_attention(attn_type=AttentionType.ENCODER_ONLY)))
    with pytest.raises(ValueError, match=r"layer caps its logits at 30\.0"):
        attention.check(Model(radix_attention(logit_cap=30.0)))


def test_exact_mode_refuses_a_layer_that_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*, on: bool) -> Any:
        return lambda: SimpleNamespace(deterministic=SimpleNamespace(enable_deterministic_inference=on))

    class Quantized(UnquantizedLinearMethod):
        pass

    layer = torch.nn.Linear(2, 2)
    layer.quant_method = Quantized()
    runner = SimpleNamespace(model=Model(layer))
    monkeypatch.setattr(exact, "get_exec", asked(on=False))
    exact.enable(runner)
    monkeypatch.setattr(exact, "get_exec", asked(on=True))
    with pytest.raises(ValueError, match="plain linear layers only, and layer has Quantized: drop it"):
        exact.enable(runner)
    layer.quant_method = UnquantizedLinearMethod()
    exact.enable(runner)
    assert type(layer.quant_method) is exact.TiledLinear
