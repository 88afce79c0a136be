"""A tiny random Gemma 4: 5 sliding layers and 1 full, window 128, 512 tokens of vocabulary. For tests and demos."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from island_engine import guards

LAYERS, WINDOW, VOCABULARY, SEED = 6, 128, 512, 0


def make(directory: Path) -> int:
    """Write the model, whole or not at all; the same weights every time. RefusedError where that cannot be."""
    if (directory / "config.json").is_file() and (directory / "model.safetensors").is_file():
        print(f"{directory}: already there")
        return 0
    if missing := next((name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None), None):
        told = f"{missing} is not installed: use .venv-engine/bin/island-engine (make venv-engine)"
        raise guards.RefusedError(f"{told}, or pip install radix-islands[engine]")
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        build = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    except OSError as error:
        raise guards.RefusedError(f"DIRECTORY {directory}: {error.strerror}; give one that can be made") from error
    try:
        parameters = _save(build)
        build.chmod(0o755)
        if directory.exists():  # a half-made one of an earlier, killed run
            shutil.rmtree(directory)
        os.replace(build, directory)  # noqa: PTH105 - Path.replace refuses to replace across names of folders on some systems
    finally:
        shutil.rmtree(build, ignore_errors=True)
    print(f"{directory}: {parameters:,} parameters")
    return 0


def config(window: int = WINDOW, layers: int = LAYERS) -> Any:
    """Gemma4TextConfig of `layers` tiny layers, the last one full attention and the others with a sliding `window`."""
    from transformers import Gemma4TextConfig

    return Gemma4TextConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        global_head_dim=16,  # another size makes the config refuse per-layer attributes
        num_global_key_value_heads=1,
        vocab_size=VOCABULARY,
        vocab_size_per_layer_input=VOCABULARY,
        hidden_size_per_layer_input=0,
        sliding_window=window,
        layer_types=["sliding_attention"] * (layers - 1) + ["full_attention"],
        max_position_embeddings=131072,
        attention_k_eq_v=False,
        enable_moe_block=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )


def _save(directory: Path) -> int:
    import torch
    from transformers import Gemma4ForCausalLM

    torch.manual_seed(SEED)
    model = Gemma4ForCausalLM(config())
    for name, weight in model.named_parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=0.05 if "embed" in name else 0.3)
    model.model.norm.weight.data.fill_(8.0)  # spreads the logits, so that a wrong key changes the argmax
    model.to(torch.bfloat16).save_pretrained(directory)
    tokenizer({}).save_pretrained(directory)
    return sum(p.numel() for p in model.parameters())


def tokenizer(words: dict[int, str]) -> Any:
    """A byte-level tokenizer; `words`: what to call some of its ids instead."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = ["<pad>", "<bos>", "<eos>", "<unk>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    names += [f"<x{i}>" for i in range(len(names), VOCABULARY)]
    made = Tokenizer(models.BPE(vocab={words.get(i, name): i for i, name in enumerate(names)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="<pad>",  # noqa: S106
        bos_token="<bos>",  # noqa: S106
        eos_token="<eos>",  # noqa: S106
        unk_token="<unk>",  # noqa: S106
    )
