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

from island_engine import guards
from island_operator.api.spec import Spec
from island_operator.core.revision import parts_of

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
@example((1_024, 64, 1, 1), {}, FAR_TOO_SMALL, STOCK)
@example((1_024, 64, 1, 1), DERIVED["geometry"], {RATIO: "0.003", "maxTotalTokens": 980_000}, STOCK)
@example(
    (1_048_576, 64, 1, 1), {}, {RATIO: "0.0001", "maxTotalTokens": 1_000}, {RATIO: "0.0001", "maxTotalTokens": 10**9}
)
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


NARROW = st.tuples(st.sampled_from([1, 100, 128, 1_024]), st.sampled_from([1, 7, 16, 64]), st.integers(1, 24),
                   st.sampled_from([1, 1, 1, 2, 3, 8]))  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(NARROW, ratios(), st.integers(-8, 8), st.integers(0, 63), st.booleans())
@example((1_024, 64, 1, 1), "0.29", 0, 0, True)
@example((100, 7, 10, 1), "0.17", 0, 0, True)
def test_islands_boot_with_whatever_is_let_in(shape, ratio, pages, tokens, proposed):
    """Their engine refuses a pool in which a lone prompt could wait for ever; SGLang rounds both pools to pages."""
    window, page, *_ = shape
    least = -(-(3 * window + (6 + pages) * page) * 10_000 // round(float(ratio) * 10_000))
    half = {RATIO: ratio, "maxTotalTokens": max(1, least + tokens)}
    edits = edits_of(shape, {}, {"islands": half, "stock": {RATIO: "1", "maxTotalTokens": 10**9}})
    spec, refused = told(edits)
    if refused and proposed:
        (sentence,) = refused
        spec, refused = told(edits | proposals(sentence)[0])
    assume(not refused)
    boots(spec["partition"]["islands"], window, page)


@settings(deadline=None)
@given(NARROW, COSTS.filter(bool), st.integers(0, 2_000))
def test_islands_boot_with_whatever_is_derived(shape, costs, more):
    """At the least budget that is let in, and a little above it."""
    window, page, *_ = shape
    edits = edits_of(shape, costs | {"kvBudgetBytes": 1}, ABSENT)
    (sentence,) = told(edits)[1]
    way = proposals(sentence)[0]
    spec, refused = told(edits | {"geometry/kvBudgetBytes": way["geometry/kvBudgetBytes"] + more})
    assert refused == []
    parts = parts_of(spec)
    boots(parts["partition"]["islands"], window, page)
    assert float(parts["partition"]["islands"][RATIO]) <= float(parts["partition"]["stock"][RATIO])


def boots(half, window, page):
    """As SGLang's pool_configurator makes the pool of these flags."""
    pool = int(half["maxTotalTokens"] // page * page * float(half[RATIO])) // page * page
    guards.check_room(pool, window, page)


@pytest.mark.parametrize(
    ("islands", "use"),
    [
        (  # 3 * (1,024 + 2 * 64) is 3,456; SGLang would make 3,264 of it
            {RATIO: "0.17", "maxTotalTokens": 19_600},
            'use maxTotalTokens 20330 at this swaFullTokensRatio, or swaFullTokensRatio "0.1764" at this',
        ),
        ({RATIO: "0.17", "maxTotalTokens": 20_330}, None),
    ],
)
def test_a_pool_too_small_for_a_lone_prompt_is_told_with_what_it_needs(islands, use):
    stock = {RATIO: "0.32", "maxTotalTokens": 20_000}
    refused = told(edits_of((1_024, 64, 4, 1), {}, {"islands": islands, "stock": stock}))[1]
    if use is None:
        assert refused == []
    else:
        (sentence,) = refused
        assert sentence.startswith(
            "partition.islands: SWA pool of 3332 tokens is below its floor of 3456 "
            "(3 * (slidingWindow + 2 * pageSize), which a prompt of several chunks needs): "
        )
        assert use in sentence


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
