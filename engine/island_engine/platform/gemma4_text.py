"""Text-only Gemma 4 checkpoints: run SGLang's own split of full and SWA shapes on them.

Core applies it only to model types that nest a text_config (utils/hf_transformers/config.py:66), so a bare
Gemma4ForCausalLM directory otherwise lacks swa_num_key_value_heads.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


def split_shapes(config: Any, *_args: Any, **_kwargs: Any) -> Any:
    """AFTER hook on the parser: the config with both shapes, or None to leave another model's alone."""
    if getattr(config, "model_type", None) != "gemma4_text":
        return None
    from sglang.srt.utils.hf_transformers import config as parser

    parser._apply_gemma4_attention_overrides(SimpleNamespace(text_config=config, eoa_token_id=None))  # noqa: SLF001
    return config
