"""The model folder of a paced engine: the layers, window and vocabulary that the scheduler sees, and no weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from island_engine.paced.profiles import Profile

VOCABULARY, FIRST = 512, 8  # tokens; the first that is no special
DUMMY = VOCABULARY - 1  # the one that every step "generates"
WORD = "\u0120dummy"  # how the byte-level tokenizer spells " dummy": what every reply reads

CHAT = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"


def write(directory: Path, profile: Profile) -> None:
    """config.json and a tokenizer. SGLang loads it with --load-format dummy."""
    from island_engine import tiny_model

    config = tiny_model.config(window=profile.roofline.geometry.window, layers=profile.swa_per_full + 1)
    config.architectures = ["Gemma4ForCausalLM"]
    config.save_pretrained(directory)
    tokenizer = tiny_model.tokenizer({DUMMY: WORD})
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(directory)
