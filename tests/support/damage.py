"""Statuses that another release, a hand or chance may have written: parts that are gone, or something else."""

import copy

from hypothesis import strategies as st

from island_operator.api.status import Run, Status
from island_operator.core.text import camel

KEYS = sorted(
    {*map(camel, Status.model_fields), *map(camel, Run.model_fields), "at", "step", "steps", "verdict", "type"}
)
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63), st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(["", "Warming", "PASS", "2026-01-01", "2026-01-01T00:10:00Z", "\x1b[31m", "0"]),
)  # fmt: skip
NAMES = st.one_of(st.sampled_from(KEYS), st.text(max_size=4))
JSON = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=12,
)


def paths(value, here=()):
    yield here
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from paths(inner, (*here, key))


def planted(value, where, what):
    for step in where[:-1]:
        value = value[step]
    if what is ...:
        del value[where[-1]]
    else:
        value[where[-1]] = what


@st.composite
def damaged(draw, value, root=()):
    """A copy in which one to three things below the path `root` are something else, or are gone."""
    value = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, 3))):
        where = draw(st.sampled_from([p for p in paths(value) if p[: len(root)] == root and p]))
        what = draw(st.one_of(JSON, st.just(...)) if len(where) > 1 else JSON)
        planted(value, where, what)
        if root and not isinstance(value.get(root[0]), dict):
            break
    return value
