"""Draft models for the tiny Gemma: they draft, cheaply and sometimes right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file
from transformers import Gemma4AssistantConfig, Gemma4TextConfig
from transformers.models.gemma4_assistant.modeling_gemma4_assistant import Gemma4AssistantForCausalLM

from island_engine import tiny_model

if TYPE_CHECKING:
    from pathlib import Path


def echo(target: Path, folder: Path) -> None:
    """An assistant (frozen-KV MTP) that drafts the last token again: right where the target repeats itself."""
    base = Gemma4TextConfig.from_pretrained(target)
    text = Gemma4TextConfig(
        **{
            **base.to_dict(),
            "num_hidden_layers": 2,
            "layer_types": ["sliding_attention", "full_attention"],
            "num_kv_shared_layers": 2,
            "vocab_size_per_layer_input": 0,
        }
    )
    model = Gemma4AssistantForCausalLM(Gemma4AssistantConfig(text_config=text, backbone_hidden_size=base.hidden_size))
    weights = load_file(target / "model.safetensors")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight.zero_()
        model.model.embed_tokens.weight.copy_(weights["model.embed_tokens.weight"])
        model.pre_projection.weight.copy_(torch.eye(base.hidden_size, 2 * base.hidden_size))
    model.to(torch.bfloat16).save_pretrained(folder)
    tiny_model.tokenizer({}).save_pretrained(folder)
