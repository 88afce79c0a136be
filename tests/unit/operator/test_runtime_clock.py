"""Whose time it is: ours as long as the API server agrees, else the API server's."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from island_operator.cluster.clock import Clock

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Node:
    """Its clock is `off` seconds off."""

    def __init__(self, off):
        self.off, self.time = timedelta(seconds=off), NOON
        self.clock = Clock(lambda: self.time + self.off)

    def hears(self, late=0.0, took=0.1):
        self.clock.heard(
            format_datetime((self.time - timedelta(seconds=late)).replace(microsecond=0), usegmt=True), took
        )

    def wrong(self):
        """Seconds between what it takes the time for and what it is."""
        return (self.clock.now() - self.time).total_seconds()


@pytest.mark.parametrize("off", [3 * 3600, -3 * 3600, 420.5])
def test_a_clock_that_is_hours_off_is_put_right_by_the_first_answer_and_told_of_once(off, caplog):
    node = Node(off)
    assert node.wrong() == off
    for second in range(60):
        node.time = NOON + timedelta(seconds=second + 0.7)
        node.hears(late=second % 3 / 3)
        assert abs(node.wrong()) < 2
    assert [r.getMessage() for r in caplog.records] == [
        f"this node's clock is {off + 0.7:+.0f} s off the API server's, which is believed: set it right"
    ]
    node.off = timedelta()
    node.hears()
    assert node.wrong() == 0
    assert "right again" in caplog.text


@pytest.mark.parametrize("off", [0, 1.5, -1.5, 3.9])
def test_clocks_that_agree_are_left_alone_whatever_an_answer_has_of_a_second(off, caplog):
    node = Node(off)
    for second in range(20):
        node.time = NOON + timedelta(seconds=second, milliseconds=999)
        node.hears()
        assert node.wrong() == off
    assert not caplog.records


def test_an_answer_that_came_late_or_tells_no_time_tells_nothing():
    """We were stopped meanwhile, or the API server was."""
    node = Node(0)
    node.hears(late=40, took=40.0)
    for date in (None, "", "soon", "Thu, 99 Jan 2026 12:00:00 GMT"):
        node.clock.heard(date, 0.1)
    assert node.wrong() == 0
