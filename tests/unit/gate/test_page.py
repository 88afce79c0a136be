"""The page that a person opens: parsed, and read."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .conftest import FakeGate

VOID = {"meta", "!doctype"}


class Reader(HTMLParser):
    """Text, pictures, and whether every element is closed by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.shapes: dict[str, int] = {}
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.shapes[tag] = self.shapes.get(tag, 0) + 1
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(gate: FakeGate) -> Reader:
    reader = Reader()
    reader.feed((gate.report_dir / "report.html").read_text())
    reader.close()
    assert not reader.open
    assert not reader.links  # one file: nothing is fetched
    assert "script" not in reader.shapes
    return reader


def test_a_pass_shows_pools_and_islands(passed: FakeGate) -> None:
    seen = read(passed)
    assert "PASS: Equal" in seen.text
    assert seen.shapes["polyline"] == 6  # two pools, three arms
    assert {"off-A", "on", "off-B", "cold", "pressure"} <= set(seen.text)
    assert "Where the answers part" not in seen.text


def test_a_fail_shows_where(failed: FakeGate) -> None:
    seen, summary = read(failed), failed.summary
    assert summary
    assert "FAIL: FirstDivergence" in seen.text
    assert seen.shapes["circle"] == 3  # frontier, last commit, divergence
    assert summary.message in seen.text
    assert "hit/0" in seen.text


def test_what_an_engine_says_is_text(gate: FakeGate) -> None:
    gate.run("refuses-loudly", "any")
    page = (gate.report_dir / "report.html").read_text()
    assert "<script>alert(1)</script>" not in page
    assert "&lt;script&gt;alert(1)" in page
    read(gate)
