"""What `plan` reads from a config.json is what SGLang 0.5.23 makes of it: layers, heads, who has a pool of its own."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sglang.srt.arg_groups.speculative_hook import _auto_choose_speculative_params
from sglang.srt.configs.model_config import ModelConfig, is_hybrid_swa_model
from sglang.srt.mem_cache import allocation_sizing
from sglang.srt.server_args import ServerArgs

from island_engine.drafts import CHAIN, NGRAM_BREADTH, Drafts
from island_engine.planner import geometry

EXAMPLES = Path(__file__).parents[3] / "examples" / "models"
GEMMA4 = json.loads((EXAMPLES / "gemma-4-26b-a4b" / "config.json").read_text())
SHARED = {"num_kv_shared_layers": 12, "attention_k_eq_v": False}
ONE_SHAPE = {"architectures": ["Gemma4ForCausalLM"], "max_position_embeddings": 131_072, "per_layer_config": {}}
CONFIGS: dict[str, dict[str, Any]] = {
    "gemma-4-26b, with its vision tower": GEMMA4,
    "gemma-4, layers that share KV": GEMMA4 | {"text_config": GEMMA4["text_config"] | SHARED},
    "gemma-4, text alone, all layers of one shape": GEMMA4["text_config"] | ONE_SHAPE,
    "gpt-oss-20b": json.loads((EXAMPLES / "gpt-oss-20b" / "config.json").read_text()),
}


@pytest.mark.parametrize("tp", [1, 4])
@pytest.mark.parametrize("name", CONFIGS)
def test_layers_heads_and_bytes_are_sglang_s(tmp_path: Path, name: str, tp: int) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS[name]))
    theirs = ModelConfig(str(tmp_path))
    ours = geometry.from_config(tmp_path, "bf16", tp)
    assert theirs.is_hybrid_swa is ours.pooled is True
    full, sliding = len(theirs.full_attention_layer_ids), len(theirs.swa_attention_layer_ids)
    assert ours.layers == (full, sliding)
    assert ours.cost.window == theirs.sliding_window_size
    # HybridSWAPoolConfigurator, bytes of one token in all layers of a kind
    assert ours.cost.full_bytes == full * 2 * theirs.get_num_kv_heads(tp) * (theirs.head_dim + theirs.v_head_dim)
    width = theirs.swa_head_dim + theirs.swa_v_head_dim
    assert ours.cost.swa_bytes == sliding * 2 * theirs.get_swa_num_kv_heads(tp) * width


@pytest.mark.parametrize("architecture", sorted(geometry.POOLED))
def test_these_have_a_pool_of_their_own(architecture: str) -> None:
    assert is_hybrid_swa_model([architecture])


@pytest.mark.parametrize("architecture", ["Gemma2ForCausalLM", "Gemma3ForConditionalGeneration", "Cohere2ForCausalLM"])
def test_these_have_not(architecture: str) -> None:
    assert architecture not in geometry.POOLED
    assert not is_hybrid_swa_model([architecture])


@pytest.mark.parametrize("page", [1, 16, 64])
@pytest.mark.parametrize("algorithm", ["EAGLE", "STANDALONE", "NGRAM"])
@pytest.mark.parametrize(("steps", "topk", "tokens"), [(3, 1, 4), (3, 4, 16), (66, 2, 8), (1, 10, 12), (5, 8, 64)])
def test_what_is_reserved_for_drafts_is_sglang_s(
    monkeypatch: pytest.MonkeyPatch, page: int, algorithm: str, steps: int, topk: int, tokens: int
) -> None:
    spec = SimpleNamespace(speculative_algorithm=algorithm, speculative_num_steps=steps, speculative_eagle_topk=topk)
    monkeypatch.setattr(allocation_sizing, "get_spec", lambda: spec)
    monkeypatch.setattr(allocation_sizing, "get_alloc_page_size", lambda: page)
    monkeypatch.setattr(allocation_sizing, "max_speculative_num_draft_tokens", lambda: tokens)
    asked = Drafts(algorithm, steps, topk, tokens, breadth=topk)
    assert asked.ahead(page) == allocation_sizing.get_alloc_reserve_per_decode()


def test_what_sglang_decides_where_nothing_is_said() -> None:
    for architecture in geometry.POOLED:
        for algorithm in ("EAGLE", "STANDALONE"):
            chosen = _auto_choose_speculative_params(ServerArgs("x", speculative_algorithm=algorithm), architecture)
            assert chosen == (*CHAIN, CHAIN[0] + 1)
    assert ServerArgs("x").speculative_ngram_max_bfs_breadth == NGRAM_BREADTH
