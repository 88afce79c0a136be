"""Gemma 4, text only."""

from sglang.srt.models.gemma4_causal import Gemma4ForCausalLM as EntryClass

__all__ = ["EntryClass"]
