"""What a rule proposes is let in: nobody is sent in a circle. The rules are asked in Python (support.cel); the words
and the real API server's own opinion are in tests/integration/operator/test_cel.py.
"""

import copy
import re

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from support import cel, schema
from support.resources import ABSENT, DERIVED, resource

from island_operator.api.spec import Spec

SCHEMA = schema.root()["properties"]["spec"]
RULED = [((), SCHEMA), *(((name,), SCHEMA["properties"][name]) for name in ("engine", "partition"))]
RATIO = "swaFullTokensRatio"
SETTING = re.compile(rf'((?:[a-z]\w*[.])*)({RATIO}|maxTotalTokens|maxRunningRequests) "?([0-9.]+)')


def told(edits):
    """The defaulted spec, and what is said of it: of a bound that is broken, or by the rules."""
    try:
        read = Spec.model_validate(resource(edits)["spec"])
    except ValidationError as error:
        return resource(edits)["spec"], [str(error)]
    spec = read.model_dump(mode="json", by_alias=True, exclude_none=True)
    found = []
    for path, node in RULED:
        value = spec
        for name in path:
            value = value.get(name)
        found += cel.refusals(node, value) if value else []
    return spec, found


def proposals(sentence):
    """The alternatives that a sentence names, each as edits of the spec."""
    refused, use = sentence.split(": use ")
    home = f"{found[0]}." if (found := re.match(r"partition[.](islands|stock)", refused)) else ""
    alternatives = []
    for text in use.split(", or "):
        edits = {}
        for prefix, name, value in SETTING.findall(text):
            path = f"{prefix or home}{name}".replace(".", "/")
            edits[path] = value if name == RATIO else int(value)
        if least := re.fullmatch(r"at least (\d+)", text):
            edits["geometry/kvBudgetBytes"] = int(least[1])
        if chunk := re.fullmatch(r"(\d+)", text):
            edits["engine/chunkedPrefillSize"] = int(chunk[1])
        if edits:
            alternatives.append(edits)
    return alternatives


def ratios(most=10_000):
    return st.integers(1, most).map(lambda n: f"{n / 10_000:.4f}".rstrip("0").rstrip("."))


def halves():
    tokens = st.one_of(st.integers(1, 10**9), st.integers(10_000, 2_000_000))
    return st.fixed_dictionaries(
        {RATIO: st.one_of(ratios(), ratios(3_000), ratios(20)), "maxTotalTokens": tokens},
        optional={"maxRunningRequests": st.integers(1, 4_096)},
    )


COSTS = st.one_of(
    st.just({}),
    st.fixed_dictionaries(
        {
            "fullBytesPerToken": st.integers(1, 200_000),
            "swaBytesPerToken": st.integers(1, 200_000),
            "draftBytesPerToken": st.integers(0, 20_000),
            "kvBudgetBytes": st.one_of(st.integers(10**9, 10**11), st.integers(1, 10**15)),
        }
    ),
)
SHAPES = st.tuples(st.sampled_from([1, 128, 1_024, 4_096, 1_048_576]), st.sampled_from([1, 16, 64, 1_024]),
                   st.integers(1, 64), st.integers(1, 4_096))  # fmt: skip
SEED = (1_024, 64, 256, 48)
FAR_TOO_SMALL = {RATIO: "0.01", "maxTotalTokens": 980_000}
STOCK = {RATIO: "0.32", "maxTotalTokens": 740_000}


def edits_of(shape, costs, partition):
    window, page, pages, running = shape
    chunk = max(page * pages, -(-64 // page) * page)
    return {
        "partition": partition,
        "geometry": {"slidingWindow": window, **costs},
        "engine/pageSize": page,
        "engine/chunkedPrefillSize": min(chunk, 1_048_576),
        "engine/maxRunningRequests": running,
    }


@settings(max_examples=200, deadline=None)
@given(SHAPES, COSTS, halves(), halves())
@example(SEED, DERIVED["geometry"] | {"kvBudgetBytes": 14_000_000_000}, FAR_TOO_SMALL, STOCK)
@example(SEED, {}, FAR_TOO_SMALL, STOCK)
@example(SEED, {}, {RATIO: "0.0001", "maxTotalTokens": 1_000}, STOCK)
@example(SEED, {}, {RATIO: "0.0001", "maxTotalTokens": 1_000}, {RATIO: "0.0001", "maxTotalTokens": 1_000})
@example(SEED, DERIVED["geometry"], FAR_TOO_SMALL, {RATIO: "0.02", "maxTotalTokens": 3_000_000})
def test_a_partition_that_is_refused_is_let_in_as_proposed(shape, costs, islands, stock):
    costs = {k: v for k, v in costs.items() if k != "slidingWindow"}
    assume(float(islands[RATIO]) <= float(stock[RATIO]))  # else: exchange them
    edits = edits_of(shape, costs, {"islands": islands, "stock": stock})
    _, refused = told(edits)
    ways = [proposals(sentence) for sentence in refused]
    if not all(ways):
        return
    for choice in range(max(map(len, ways), default=0)):
        pasted = copy.deepcopy(edits)
        for way in ways:
            pasted |= way[min(choice, len(way) - 1)]
        assert told(pasted)[1] == [], (refused, pasted)


@given(SHAPES, COSTS.filter(bool))
@example(
    SEED, {"fullBytesPerToken": 10**9, "swaBytesPerToken": 10**9, "draftBytesPerToken": 0, "kvBudgetBytes": 10**14}
)
def test_a_budget_too_small_for_derived_halves_is_let_in_as_proposed(shape, costs):
    edits = edits_of(shape, costs, ABSENT)
    for sentence in told(edits)[1]:
        for way in proposals(sentence):
            assert told(edits | way)[1] == []


@pytest.mark.parametrize(("page", "chunk", "use"), [(64, 1_000, 960), (1_000, 1_048_575, 1_048_000), (48, 64, 96)])
def test_a_chunk_of_broken_pages_is_let_in_as_proposed(page, chunk, use):
    edits = {"engine/pageSize": page, "engine/chunkedPrefillSize": chunk} | DERIVED | {"geometry/kvBudgetBytes": 10**15}
    (sentence,) = told(edits)[1]
    (way,) = proposals(sentence)
    assert way == {"engine/chunkedPrefillSize": use}
    assert told(edits | way)[1] == []
