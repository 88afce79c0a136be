"""The draft model of EAGLE3."""

from sglang.srt.models.llama_eagle3 import LlamaForCausalLMEagle3 as EntryClass

__all__ = ["EntryClass"]
