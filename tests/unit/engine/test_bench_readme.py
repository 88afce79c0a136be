"""The README's measurements are those of docs/bench, rendered by island_engine.bench.readme."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from island_engine.bench import readme, report

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[3]


def between(text: str) -> str:
    return text.split(readme.BEGIN + "\n", 1)[1].split(readme.END, 1)[0]


def test_the_readme_says_what_was_measured() -> None:
    results = readme.load(ROOT / readme.RESULTS)
    assert {"admission", "reuse"} <= set(results)
    assert between((ROOT / "README.md").read_text()) == readme.render(results)


def test_every_result_in_the_repository_is_one() -> None:
    ours = [path for path in sorted((ROOT / readme.RESULTS).glob("*.json")) if path.stem in report.KEYS]
    assert len(ours) > 5  # the planner and the operator keep theirs beside them
    for path in ours:
        assert report.read(path)["bench"] == path.stem


def hold(**arms: float) -> dict[str, Any]:
    values = {
        arm: {"hold_mean": mean, "hold_max": mean + 32, "roomy_mean": mean, "roomy_max": mean, "evictable_dead": 0}
        for arm, mean in arms.items()
    }
    return report.result("hold", {}, values)


def test_a_number_that_changes_changes_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text(f"before\n{readme.BEGIN}\nold\n{readme.END}\nafter\n")
    report.write(hold(stock=2144, islands=1128), tmp_path / "new" / "hold.json")
    assert readme.main(["--from", "new"]) == 0
    text = (tmp_path / "README.md").read_text()
    assert "|  | 2,144 / 2,176 |  | 1,128 / 1,160 |" in text
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert json.loads((tmp_path / "docs/bench/hold.json").read_text())["arms"]["stock"]["hold_mean"] == 2144
    report.write(hold(stock=2145, islands=1128), tmp_path / "docs/bench/hold.json")
    assert readme.main([]) == 0
    assert (tmp_path / "README.md").read_text() != text


def test_a_readme_without_markers_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text("no markers")
    assert readme.main([]) == 2
    assert "put them where the table belongs" in capsys.readouterr().err
    assert (tmp_path / "README.md").read_text() == "no markers"
