"""An engine's /metrics, ours and hostile ones."""

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from island_operator.core.exposition import LONGEST_LINE, MOST_BUCKETS, Sample, UnreadableError, parse

LABELS = 'engine_type="unified",model_name="tiny",tp_rank="0"'
TEXT = f"""# HELP sglang:num_queue_reqs The number of requests in the waiting queue.
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{{{LABELS}}} 3.0
sglang:num_queue_reqs{{{LABELS},dp_rank="1"}} 2.0
sglang:num_running_reqs{{{LABELS}}} 7.0
sglang:full_token_usage{{{LABELS}}} 0.25
sglang:full_token_usage{{{LABELS},dp_rank="1"}} 0.5
sglang:swa_token_usage{{{LABELS}}} 0.97
sglang:num_requests_total{{{LABELS},is_streaming="True"}} 90.0
sglang:num_requests_total{{{LABELS},is_streaming="False"}} 10.0
sglang:num_requests_total_created{{{LABELS}}} 1.7e+09
sglang:num_retracted_requests_total{{{LABELS}}} 4.0
sglang:http_responses_total{{endpoint="/generate",method="POST",status_code="200"}} 95.0
sglang:http_responses_total{{endpoint="/generate",method="POST",status_code="503"}} 5.0
sglang:http_responses_total{{endpoint="/health",method="GET",status_code="503"}} 77.0
sglang:time_to_first_token_seconds_bucket{{le="0.1",{LABELS}}} 10.0
sglang:time_to_first_token_seconds_bucket{{le="1.0",{LABELS}}} 99.0
sglang:time_to_first_token_seconds_bucket{{le="+Inf",{LABELS}}} 100.0
sglang:time_to_first_token_seconds_sum{{{LABELS}}} 12.5
island_frontier_violations_total 1.0
python_info{{implementation="CPython"}} 1.0
"""


def test_what_is_decided_by_is_read():
    assert parse(TEXT, 7.0) == Sample(
        at=7.0,
        requests=100,
        retracted=4,
        violations=1,
        responses=100,
        errors=5,
        running=7,
        queued=5,
        full_usage=0.5,
        swa_usage=0.97,
        ttft=((0.1, 10), (1.0, 99), (math.inf, 100)),
    )


def many(count):
    return "\n".join(f'sglang:time_to_first_token_seconds_bucket{{le="{n}"}} 1' for n in range(count))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not Prometheus text"),
        ("<html><body>hello</body></html>", "not Prometheus text"),
        ('{"json": true}', "not Prometheus text"),
        ("\x00\x01\x02", "not Prometheus text"),
        ("up 1\nother_total 2\n", "none of SGLang's metrics"),
        ("sglang:num_queue_reqs NaN", "a value that is not a number from 0 on"),
        ("sglang:num_queue_reqs +Inf", "a value that is not a number from 0 on"),
        ("sglang:num_queue_reqs -1", "a value that is not a number from 0 on"),
        ("sglang:num_queue_reqs 1e999", "a value that is not a number from 0 on"),
        ("sglang:num_queue_reqs many", "not Prometheus text"),
        ("sglang:num_queue_reqs{", "not Prometheus text"),
        ("sglang:num_queue_reqs{" + "}" * LONGEST_LINE + " 1", "not Prometheus text"),
        ('sglang:time_to_first_token_seconds_bucket{le="soon"} 1', "a bucket without a bound"),
        ('sglang:time_to_first_token_seconds_bucket{le="nan"} 1', "a bucket without a bound"),
        ("sglang:time_to_first_token_seconds_bucket 1", "a bucket without a bound"),
        (many(MOST_BUCKETS + 1), f"more than {MOST_BUCKETS} buckets of a histogram"),
    ],
)
def test_what_cannot_be_is_named_without_a_word_of_it(text, why):
    with pytest.raises(UnreadableError) as caught:
        parse(text, 0.0)
    assert str(caught.value) == why


def test_a_label_of_a_user_cannot_pose_as_another():
    forged = r'sglang:http_responses_total{endpoint="/x\",status_code=\"500",method="GET",status_code="200"} 9'
    assert parse(forged, 0.0).errors == 0


@given(st.text(max_size=300))
def test_any_text_is_a_sample_or_unreadable(text):
    for hostile in (text, f"sglang:num_queue_reqs {text}", f"sglang:http_responses_total{{{text}}} 1"):
        with contextlib.suppress(UnreadableError):
            assert math.isfinite(parse(hostile, 0.0).queued)
