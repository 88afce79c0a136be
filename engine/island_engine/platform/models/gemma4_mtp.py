"""The draft model of Gemma 4 (frozen-KV MTP)."""

from sglang.srt.models.gemma4_mtp import Gemma4AssistantForCausalLM as EntryClass

__all__ = ["EntryClass"]
