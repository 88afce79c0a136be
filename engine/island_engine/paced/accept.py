"""How many tokens each speculative step commits: a function of request and step alone, so equal in every arm."""

from __future__ import annotations

import hashlib
import random


class AcceptLengths:
    """Uniform around `mean`, as wide as 1..block allows. Independent of the batch (the seed's rises with it)."""

    def __init__(self, block: int, mean: float) -> None:
        if not 1 <= mean <= block:
            raise ValueError(f"a mean accept length of {mean} does not fit a block of {block}: use 1 to {block}")
        half = min(mean - 1, block - mean)
        self._low, self._high = mean - half, mean + half
        self._streams: dict[str, random.Random] = {}

    def next(self, request: str) -> int:
        """Tokens that the next step of this request commits."""
        stream = self._streams.get(request)
        if stream is None:
            seed = int.from_bytes(hashlib.sha256(request.encode()).digest()[:8])
            stream = self._streams[request] = random.Random(seed)  # noqa: S311 - repeatable on purpose
        return round(stream.uniform(self._low, self._high))

    def forget(self, request: str) -> None:
        """The request has ended."""
        self._streams.pop(request, None)
