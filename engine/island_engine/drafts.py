"""Slots that SGLang 0.5.23 reserves ahead of a running request, for drafts that it may have to verify. Pure standard
library: the operator imports it.

At every decode step a request is given slots, in both pools, up to twice what one step may write (mem_cache/
allocation_sizing.py): without overlap half of them would do. A chain of drafts takes its length; branches of a tree
(--speculative-eagle-topk above 1) take whole pages each, because the last page of the prompt is copied to all of them.
Sizes are in tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from island_engine import flags

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ALONE = 1  # without speculation: the step in flight, under overlap
FIELDS = {  # of SGLang's server arguments -> ours
    "speculative_algorithm": "algorithm",
    "speculative_num_steps": "steps",
    "speculative_eagle_topk": "topk",
    "speculative_num_draft_tokens": "tokens",
    "speculative_ngram_max_bfs_breadth": "breadth",
}
NGRAM_TOKENS, NGRAM_BREADTH = 12, 10  # its defaults (arg_groups/speculative_hook.py, fields/spec.py)
CHAIN = (3, 1)  # steps and topk of all others, for every model that islands serve (_auto_choose_speculative_params)


@dataclass(frozen=True)
class Drafts:
    """What was asked of speculation; None where SGLang decides. Without an algorithm there is none."""

    algorithm: str | None = None
    steps: int | None = None
    topk: int | None = None
    tokens: int | None = None
    breadth: int | None = None

    def ahead(self, page: int) -> int:
        """Tokens that are reserved ahead of a request's last committed one, before they are rounded up to pages."""
        return 2 * self._step(page) if self.algorithm else ALONE

    def _step(self, page: int) -> int:
        """The most that one step may write (get_alloc_len_per_decode)."""
        if (self.algorithm or "").upper() == "NGRAM":  # its tree lies in the mask of the step that verifies it
            tokens, topk = self.tokens or NGRAM_TOKENS, self.breadth or NGRAM_BREADTH
            return max((self.steps or tokens // topk or 1) * topk, tokens)
        steps, topk = (self.steps, self.topk or 1) if self.steps else CHAIN
        tokens = self.tokens if self.tokens and topk > 1 else steps + 1  # SGLang makes it so for a chain
        if page == 1 or topk == 1:
            return max(steps * topk, tokens)
        pages = (page - 1 + steps + page - 1) // page
        return max(pages * page * topk, tokens)


NONE = Drafts()


def of_fields(said: Mapping[str, str | float | None]) -> Drafts:
    """From SGLang's server arguments by name, as /server_info and a boot's log have them. ValueError: not a number."""
    found = {ours: said.get(name) for name, ours in FIELDS.items()}
    algorithm = found.pop("algorithm")
    numbers = {name: None if value in {None, "", "None"} else int(value or 0) for name, value in found.items()}
    return Drafts(None if algorithm in {None, "", "None"} else str(algorithm), **numbers)


def of_arguments(arguments: Sequence[str]) -> Drafts:
    """From an engine's arguments; what is no number is for SGLang to refuse."""
    try:
        return of_fields({name: flags.value(arguments, f"--{name.replace('_', '-')}") for name in FIELDS})
    except ValueError:
        return NONE
