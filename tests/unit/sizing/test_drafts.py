"""What SGLang reserves ahead of a request for its drafts, and what that makes of the pools."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from island_engine import sizing
from island_engine.drafts import ALONE, NONE, Drafts, of_arguments, of_fields
from island_engine.islands import ledger

EAGLE = ("--speculative-algorithm", "EAGLE")
TREE = (*EAGLE, "--speculative-num-steps=3", "--speculative-eagle-topk", "4", "--speculative-num-draft-tokens 16")
GEMMA = sizing.Geometry(window=1024, full_bytes=9_500, swa_bytes=95_000, draft_bytes=10_240)
SERVING = sizing.Serving(page=64, chunk=16_384, running=48)


@pytest.mark.parametrize(
    ("arguments", "ahead"),  # by hand: twice max(steps * topk, drafts); of a tree two pages a branch at 3 steps, p 64
    [
        ((), ALONE),
        (("--speculative-num-steps", "3"), ALONE),  # without an algorithm nothing speculates
        (EAGLE, 8),
        (("--speculative-algorithm=NEXTN", "--speculative-num-steps", "5", "--speculative-eagle-topk", "1"), 12),
        (TREE, 1024),
        ((*TREE, "--speculative-eagle-topk", "8"), 2048),
        (("--speculative-alg=EAGLE", "--speculative-num-s", "3", "--speculative-eagle", "4"), 1024),  # abbreviated
        ((*TREE, "--speculative-num-steps", "66"), 1536),
        (("--speculative-algorithm", "NGRAM"), 24),
        (("--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "16"), 32),
        (("--speculative-algorithm", "NGRAM", "--speculative-num-steps", "3"), 60),
        ((*EAGLE, "--speculative-num-steps", "many"), ALONE),  # SGLang refuses it
        (("--dtype", "--speculative-algorithm"), ALONE),
    ],
)
def test_of_arguments(arguments, ahead):
    assert of_arguments(arguments).ahead(64) == ahead


def test_one_page_a_token_needs_no_pages_a_branch():
    assert of_arguments(TREE).ahead(1) == 32


def test_what_an_engine_says_of_itself():
    said = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3, "speculative_eagle_topk": 4}
    assert of_fields(said) == Drafts("EAGLE", 3, 4)
    assert of_fields({"speculative_algorithm": None}) == of_fields({"speculative_algorithm": "None"}) == NONE


@given(st.integers(1, 64), st.sampled_from([1, 16, 64, 256]), st.sampled_from([1, 2, 4, 8]), st.integers(1, 12))
def test_a_planned_request_is_what_admission_reserves(pages, page, topk, steps):
    """Up to the page that planning is wider by than the ledger where nothing is allocated ahead."""
    ahead = Drafts("EAGLE", steps, topk, 2 * topk).ahead(page)
    serving, window = replace(SERVING, page=page, ahead=ahead), pages * page
    assert sizing.peak(window, serving, islands=True) == ledger.cap(window, page, ahead)
    assert serving.drafted == ledger.cap(window, page, ahead) - ledger.cap(window, page, ALONE)


def test_a_chain_changes_nothing_and_a_tree_doubles_the_pool():
    chain, tree = (replace(SERVING, ahead=of_arguments(one).ahead(64)) for one in (EAGLE, TREE))
    plain = sizing.derive_halves(GEMMA, SERVING, 37_000_000_000)
    assert sizing.derive_halves(GEMMA, chain, 37_000_000_000) == plain
    drafted = sizing.derive_halves(GEMMA, tree, 37_000_000_000)
    for half, before, on in ((drafted.islands, plain.islands, True), (drafted.stock, plain.stock, False)):
        assert half.swa_tokens >= sizing.need(1024, tree, islands=on) > before.swa_tokens
        assert sizing.swa_bound(half, 1024, tree, islands=on) >= 48 > sizing.swa_bound(before, 1024, tree, islands=on)
