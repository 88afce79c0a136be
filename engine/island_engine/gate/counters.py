"""The engine's counters that prove that islands happened, and what each class of probes must have seen of them."""

from __future__ import annotations

PREFILL_ISLANDS = "island_published_total{phase=prefill}"
DECODE_ISLANDS = "island_published_total{phase=decode}"
TOMBSTONE_HITS = "island_tombstone_hits_total"
TOMBSTONED = "island_tombstoned_tokens_total"
RUNNING_HITS = "island_hit_tokens_total{origin=running}"
VIOLATIONS = "island_frontier_violations_total"

SMALLER_CHUNK = "a smaller --chunked-prefill-size"
SOONER_OR_MORE = "a smaller --chunked-prefill-size or a larger --max-total-tokens"
SOONER = "a smaller --island-decode-interval or --chunked-prefill-size"
# Per class: what must have happened in the on arm for equality to mean anything, and what to change when it did not.
MUST_HAPPEN: dict[str, dict[str, str]] = {
    "cold": {
        PREFILL_ISLANDS: SMALLER_CHUNK,
        TOMBSTONED: "a larger --chunked-prefill-size than window and page together",
    },
    "hit": {TOMBSTONE_HITS: SOONER_OR_MORE},
    "lengths": {PREFILL_ISLANDS: SMALLER_CHUNK, TOMBSTONE_HITS: SOONER_OR_MORE},
    "branch": {TOMBSTONE_HITS: SOONER_OR_MORE},
    "extension": {DECODE_ISLANDS: SOONER, TOMBSTONE_HITS: "a larger --max-total-tokens"},
    "running": {DECODE_ISLANDS: SOONER, RUNNING_HITS: SOONER},
    "concurrent": {PREFILL_ISLANDS: SMALLER_CHUNK},
    "pressure": {PREFILL_ISLANDS: SMALLER_CHUNK},
    "text": {},  # as long as the user's prompts are
}
