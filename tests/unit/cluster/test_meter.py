"""What the scale story claims is computed by one pure function."""

import pytest

from demo.meter import Sample, measure
from demo.traffic import Request


def sample(at, running, *, pod="a", queued=0):
    return Sample(at=at, pod=pod, islands=True, running=running, queued=queued, swa=0.5, full=0.5)


def request(at, seconds, *, ok=True, new=100):
    return Request(at=at, seconds=seconds, ok=ok, prompt=1, cached=0, new=new)


def test_engines_are_added_up_and_moments_averaged():
    seen = [sample(10, 40), sample(10, 20, pod="b"), sample(13, 30, queued=8), sample(13, 30, pod="b"), sample(99, 1)]
    got = measure(seen, [request(5, 10, new=300)], 10, 20)
    assert (got.running, got.queued) == (60, 4)
    assert (got.latency, got.tok_s, got.answered) == (10, 30, 1)


def test_a_request_counts_where_it_was_answered_and_only_if_it_was():
    asked = [request(0, 9), request(0, 11), request(9, 3), request(19, 2), request(12, 1, ok=False)]
    assert measure([sample(15, 1)], asked, 10, 20).answered == 2


@pytest.mark.parametrize(("seen", "asked"), [([], [request(10, 1)]), ([sample(10, 1)], [])])
def test_nothing_seen_is_no_result(seen, asked):
    with pytest.raises(ValueError, match="none to judge by"):
        measure(seen, asked, 10, 20)
