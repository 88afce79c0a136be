"""The draft model of EAGLE."""

from sglang.srt.models.llama_eagle import LlamaForCausalLMEagle as EntryClass

__all__ = ["EntryClass"]
