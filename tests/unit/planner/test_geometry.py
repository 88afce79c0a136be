"""Bytes per token of real models, from the fields of their config.json that count; what is refused, and why."""

import json

import pytest

from island_engine.planner import PlanError
from island_engine.planner.geometry import from_config, from_file

from .conftest import EXAMPLES, SEED

FULL, SLIDING = "full_attention", "sliding_attention"
GEMMA4 = {
    "model_type": "gemma4_text",
    "num_hidden_layers": 30,
    "layer_types": ([SLIDING] * 5 + [FULL]) * 5,
    "sliding_window": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 256,
    "num_global_key_value_heads": 2,
    "global_head_dim": 512,
    "attention_k_eq_v": True,
}
# Name: config, layers (full, sliding), window, bytes per token in bf16: full, sliding.
MODELS = {
    # SGLang's own figures for the 26B in bf16: 4,096 and 8,192 bytes a layer.
    "gemma-4-26b": (
        {"architectures": ["Gemma4ForConditionalGeneration"], "text_config": GEMMA4},
        (5, 25),
        1024,
        5 * 4096,
        25 * 8192,
    ),
    "gemma-4-31b": (
        GEMMA4
        | {
            "num_hidden_layers": 60,
            "layer_types": ([SLIDING] * 5 + [FULL]) * 10,
            "num_key_value_heads": 16,
            "num_global_key_value_heads": 4,
        },
        (10, 50),
        1024,
        10 * 4 * 1024 * 2,
        50 * 16 * 512 * 2,
    ),
    # Layers that reuse KV have slots in SGLang's pools all the same; without attention_k_eq_v the head count is common.
    "gemma-4-e2b": (
        {
            "model_type": "gemma4_text",
            "num_hidden_layers": 35,
            "layer_types": ([SLIDING] * 4 + [FULL]) * 7,
            "sliding_window": 512,
            "num_key_value_heads": 1,
            "num_kv_shared_layers": 20,
        },
        (7, 28),
        512,
        7 * 1024 * 2,
        28 * 512 * 2,
    ),
    "gemma-4 as transformers 5 saves it": (
        {key: value for key, value in GEMMA4.items() if "global" not in key}
        | {"per_layer_config": {"5": {"head_dim": 512, "num_key_value_heads": 2}}},
        (5, 25),
        1024,
        5 * 4096,
        25 * 8192,
    ),
    "gemma-4 of one shape": (
        {key: value for key, value in GEMMA4.items() if "global" not in key} | {"per_layer_config": {}},
        (5, 25),
        1024,
        5 * 8192,
        25 * 8192,
    ),
    # The 4B leaves out what its class has by default: heads, their dimension, the pattern.
    "gemma-3-4b": (
        {
            "architectures": ["Gemma3ForConditionalGeneration"],
            "text_config": {
                "model_type": "gemma3_text",
                "hidden_size": 2560,
                "num_hidden_layers": 34,
                "sliding_window": 1024,
            },
        },
        (5, 29),
        1024,
        5 * 4 * 512 * 2,
        29 * 4 * 512 * 2,
    ),
    "gemma-3-27b": (
        {
            "model_type": "gemma3_text",
            "num_hidden_layers": 62,
            "num_key_value_heads": 16,
            "head_dim": 128,
            "sliding_window": 1024,
            "sliding_window_pattern": 6,
        },
        (10, 52),
        1024,
        10 * 16 * 256 * 2,
        52 * 16 * 256 * 2,
    ),
    "gemma-2-9b": (
        {
            "model_type": "gemma2",
            "num_hidden_layers": 42,
            "num_key_value_heads": 8,
            "head_dim": 256,
            "sliding_window": 4096,
        },
        (21, 21),
        4096,
        21 * 8 * 512 * 2,
        21 * 8 * 512 * 2,
    ),
    "gpt-oss-20b": (
        {
            "architectures": ["GptOssForCausalLM"],
            "model_type": "gpt_oss",
            "num_hidden_layers": 24,
            "layer_types": [SLIDING, FULL] * 12,
            "sliding_window": 128,
        },
        (12, 12),
        128,
        12 * 8 * 128 * 2,
        12 * 8 * 128 * 2,
    ),
    "command-r7b": (
        {
            "model_type": "cohere2",
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "hidden_size": 4096,
            "sliding_window_pattern": 4,
        },
        (8, 24),
        4096,
        8 * 8 * 256 * 2,
        24 * 8 * 256 * 2,
    ),
    "exaone-4, a pattern of letters": (
        {
            "model_type": "exaone4",
            "num_hidden_layers": 8,
            "num_attention_heads": 40,
            "num_key_value_heads": 8,
            "hidden_size": 5120,
            "sliding_window": 4096,
            "sliding_window_pattern": "LLLG",
        },
        (2, 6),
        4096,
        2 * 8 * 256 * 2,
        6 * 8 * 256 * 2,
    ),
    "step-3.5, other heads in sliding layers": (
        {
            "model_type": "step3p5",
            "num_hidden_layers": 4,
            "layer_types": [FULL, SLIDING, SLIDING, SLIDING],
            "sliding_window": 512,
            "num_attention_heads": 64,
            "num_attention_groups": 8,
            "head_dim": 128,
            "attention_other_setting": {"num_attention_groups": 4},
        },
        (1, 3),
        512,
        8 * 256 * 2,
        3 * 4 * 256 * 2,
    ),
    "a custom model, keys wider than values": (
        {
            "architectures": ["OwnForCausalLM"],
            "is_hybrid_swa": True,
            "num_hidden_layers": 4,
            "hybrid_layer_pattern": [1, 0, 1, 1],
            "sliding_window_size": 128,
            "num_attention_heads": 64,
            "num_key_value_heads": 4,
            "head_dim": 192,
            "v_head_dim": 128,
            "swa_num_key_value_heads": 8,
        },
        (1, 3),
        128,
        4 * 320 * 2,
        3 * 8 * 320 * 2,
    ),
}


def save(folder, config):
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("name", MODELS)
def test_bytes_per_token(tmp_path, name):
    config, layers, window, full, sliding = MODELS[name]
    found = from_config(save(tmp_path, config), "bf16")
    assert found.layers == layers
    assert (found.cost.window, found.cost.full_bytes, found.cost.swa_bytes) == (window, full, sliding)


@pytest.mark.parametrize(
    ("dtype", "size"), [("float32", 4), ("bf16", 2), ("float16", 2), ("fp8_e4m3", 1), ("fp8_e5m2", 1)]
)
def test_the_type_of_kv(tmp_path, dtype, size):
    folder = save(tmp_path, GEMMA4)
    assert from_config(folder, dtype).cost.full_bytes == 5 * 2048 * size


def test_auto_is_the_model_s_own_type(tmp_path):
    nested = {"torch_dtype": "float32", "text_config": GEMMA4}
    assert from_config(save(tmp_path, nested)).cost.full_bytes == 5 * 2048 * 4
    assert from_config(save(tmp_path, GEMMA4)).dtype == "bfloat16"


def test_tensor_parallelism_splits_heads_as_far_as_there_are_any(tmp_path):
    one, four = (from_config(save(tmp_path, GEMMA4), "fp8_e4m3", tp).cost for tp in (1, 4))
    assert four.swa_bytes == one.swa_bytes / 4  # 8 heads
    assert four.full_bytes == one.full_bytes / 2  # 2 heads, each on two GPUs


@pytest.mark.parametrize(("name", "pooled"), [("gemma-4-26b", True), ("gpt-oss-20b", True), ("gemma-3-4b", False)])
def test_which_models_have_a_pool_of_their_own_for_sliding_layers(tmp_path, name, pooled):
    assert from_config(save(tmp_path, MODELS[name][0])).pooled is pooled


def test_the_examples_are_the_real_models():
    gemma = from_config(EXAMPLES / "gemma-4-26b-a4b", "fp8_e4m3", draft_bytes=10_240)
    assert (gemma.cost.full_bytes, gemma.cost.swa_bytes) == (10_240, 102_400)
    seed = from_file(EXAMPLES / "gemma-4-26b-a4b" / "seed.json")  # 9.5 and 95 KB: the seed's rounding
    assert gemma.cost.swa_bytes / gemma.cost.full_bytes == seed.cost.swa_bytes / seed.cost.full_bytes == 10
    gpt = from_config(EXAMPLES / "gpt-oss-20b" / "config.json")
    assert (gpt.layers, gpt.cost.window, gpt.cost.full_bytes, gpt.cost.swa_bytes) == ((12, 12), 128, 24_576, 24_576)


REFUSED = {
    "llama 4": (
        {
            "model_type": "llama4_text",
            "num_hidden_layers": 48,
            "attention_chunk_size": 8192,
            "layer_types": ["chunked_attention"] * 48,
        },
        "attends in local chunks of 8192 tokens",
    ),
    "chunked layers alone": (GEMMA4 | {"layer_types": ["chunked_attention"] * 30}, "not known, chunked_attention"),
    "mamba": (
        {"num_hidden_layers": 4, "layers_block_type": ["mamba", "attention", "mamba", "moe"]},
        "Mamba or linear attention",
    ),
    "linear attention": (GEMMA4 | {"layer_types": ["linear_attention"] * 30}, "Mamba or linear attention"),
    "nemotron-h": (
        {"num_hidden_layers": 4, "hybrid_override_pattern": "M-M*", "sliding_window": 128},
        "Mamba or linear attention",
    ),
    "mla": (GEMMA4 | {"kv_lora_rank": 512}, "compressed KV (MLA)"),
    "llama 3": ({"model_type": "llama", "num_hidden_layers": 32, "num_attention_heads": 32}, "has no sliding window"),
    "qwen 2, window switched off": (
        GEMMA4 | {"model_type": "qwen2", "use_sliding_window": False},
        "has no sliding window",
    ),
    "mistral, every layer slides": (
        {
            "model_type": "mistral",
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "hidden_size": 4096,
            "sliding_window": 4096,
        },
        "no layer with full attention",
    ),
    "a window without a size": (GEMMA4 | {"model_type": "x", "sliding_window": None}, "has no sliding window"),
    "no layers": ({"model_type": "x", "sliding_window": 128}, "no num_hidden_layers"),
    "no heads": (
        {"num_hidden_layers": 2, "layer_types": [FULL, SLIDING], "sliding_window": 128},
        "no num_attention_heads",
    ),
    "too few kinds": (GEMMA4 | {"num_hidden_layers": 31, "model_type": "x"}, "names the kind of 30 of its 31 layers"),
    "heads that are no number": (GEMMA4 | {"num_key_value_heads": "many"}, 'heads "many" is not a whole number'),
    "layers beyond all": (
        GEMMA4 | {"num_hidden_layers": 10**30, "layer_types": None},
        "is not a whole number from 1 to 10000",
    ),
    "a negative window": (GEMMA4 | {"sliding_window": -1}, "sliding_window -1 is not a whole number"),
    "text_config is no object": ({"text_config": []}, "text_config is not an object"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_one_sentence_that_names_the_flag_and_what_to_use(tmp_path, name):
    config, why = REFUSED[name]
    with pytest.raises(PlanError) as told:
        from_config(save(tmp_path, {"architectures": ["TheModel"], **config}))
    said = str(told.value)
    assert said.startswith(f"--model {tmp_path}")
    assert why in said
    assert said.endswith("use a hybrid sliding-window model, or --geometry FILE")
    assert "\n" not in said


def test_the_seed_s_geometry():
    found = from_file(EXAMPLES.joinpath(SEED))
    assert (found.cost.window, found.cost.full_bytes, found.cost.swa_bytes, found.cost.draft_bytes) == (
        1024,
        9500,
        95000,
        10240,
    )
    assert found.budget == 37_000_000_000
    assert found.layers is None
