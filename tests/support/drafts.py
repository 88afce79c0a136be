"""Draft models for the tiny Gemma: they draft, cheaply and sometimes right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file, save_file
from transformers import Gemma4AssistantConfig, Gemma4ForCausalLM, Gemma4TextConfig, LlamaConfig
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


LAYERS = (0, 2, 4)  # of the target: EAGLE3 reads what they put out
FEATURES, NOISE = 512, 0.05


def eagle(target: Path, folder: Path, text: list[int], version: int) -> None:
    """An EAGLE or EAGLE3 draft that knows one text by heart: `fc` recovers what the target's head reads at a token, a
    random MLP whose output is fitted adds what leads to the next one, both by least squares. Attention is random and
    small: it blurs what the draft knows, so that some drafts are wrong, and others are if its KV is.
    """
    model = Gemma4ForCausalLM.from_pretrained(target, dtype=torch.float32)
    size, noise = model.config.hidden_size, torch.Generator().manual_seed(0)

    def random(rows: int, columns: int, scale: float) -> torch.Tensor:
        return scale * torch.randn(rows, columns, generator=noise)

    with torch.no_grad():
        states = [state[0] for state in model(torch.tensor([text]), output_hidden_states=True).hidden_states]
        head = torch.nn.functional.rms_norm(states[-1], (size,))
        next_embeddings = model.model.embed_tokens.weight[text[1:] + text[-1:]]
        seen = [states[layer + 1] for layer in LAYERS] if version == 3 else [next_embeddings, states[-1]]
        gate, up = (random(FEATURES, size, 0.3) for _ in range(2))
        features = torch.nn.functional.silu(head @ gate.T) * (head @ up.T)
        tensors = {
            "fc.weight": (torch.linalg.pinv(torch.cat(seen, 1)) @ head).T,
            "layers.0.mlp.gate_proj.weight": gate,
            "layers.0.mlp.up_proj.weight": up,
            "layers.0.mlp.down_proj.weight": (torch.linalg.pinv(features[:-1]) @ (head[1:] - head[:-1])).T,
        }
    wide = size * (2 if version == 3 else 1)  # EAGLE3's layer reads the token beside what fc made of the target
    for name, rows, columns in (("q", size, wide), ("k", size // 2, wide), ("v", size // 2, wide), ("o", size, size)):
        tensors[f"layers.0.self_attn.{name}_proj.weight"] = random(rows, columns, NOISE)
    norms = ["layers.0.post_attention_layernorm"]
    if version == 3:
        norms += ["layers.0.input_layernorm", "layers.0.hidden_norm", "norm"]
    else:
        tensors["fc.bias"] = torch.zeros(size)
    tensors |= {f"{name}.weight": torch.ones(size) for name in norms}
    folder.mkdir(parents=True)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    LlamaConfig(
        architectures=["LlamaForCausalLMEagle3" if version == 3 else "LlamaForCausalLMEagle"],
        hidden_size=size,
        intermediate_size=FEATURES,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=model.config.vocab_size,
        max_position_embeddings=model.config.max_position_embeddings,
        draft_vocab_size=None,  # embeddings and head are the target's
        eagle_config={"eagle_aux_hidden_state_layer_ids": list(LAYERS)},
    ).save_pretrained(folder)
    tiny_model.tokenizer({}).save_pretrained(folder)
