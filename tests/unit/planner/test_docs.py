"""docs/plan.md: its commands run, and show what it shows; its tables are those of docs/bench."""

import json
import re
import shlex
from pathlib import Path

import pytest

from island_engine.planner.plan import SESSIONS
from island_engine.planner.verdict import judge
from island_engine.planner.workload import CLIP

from .conftest import EXAMPLES
from .test_cli import ENGINE, TINY
from .test_numbers import BEST, CASES, PLANNED

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "plan.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"```sh\n(.*?)```\n(?:\n```text\n(.*?)```)?", GUIDE, re.DOTALL)
WHY = {
    "random-48": "48 requests run either way",
    "random-128": "more run, and larger batches take longer",
    "nospec": "more run, and larger batches take longer",
    "agentic-64": "every transcript stays cached either way",
    "agentic-80": "they stay cached with islands; half of every prompt is computed again without",
    "agentic-96": "more of them stay cached",
}


def ran(arm, name):
    """Ratio that was run, tokens/s there, requests at once there or None."""
    if name in PLANNED[arm]:
        found = PLANNED[arm][name]
        return found["tok_s"], found["running"]
    side = CASES[name].on if arm == "islands" else CASES[name].off
    found = BEST[arm][name]
    ratio, speed = min(found["curve"], key=lambda point: abs(point[0] - side.ratio))
    return speed, found["running"] if ratio == found["ratio"] else None


def predicted():
    """Rows of the table that compares the plan with the simulator."""
    rows = []
    for name, case in CASES.items():
        cells = [f"`{name}`"]
        for arm, side in (("islands", case.on), ("stock", case.off)):
            speed, running = ran(arm, name)
            simulated = "" if running is None else f", {running:.0f}"
            cells += [
                side.half.ratio,
                f"{side.running:.0f}{simulated}",
                f"{speed:,.0f} ({BEST[arm][name]['tok_s']:,.0f})",
            ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def pays():
    """Rows of the table of gains."""
    rows = []
    for name in CASES:
        gain = BEST["islands"][name]["tok_s"] / BEST["stock"][name]["tok_s"] - 1
        rows.append(f"| `{name}` | {100 * gain:+.1f} % tokens/s | {WHY[name]} |")
    return "\n".join(rows)


@pytest.mark.parametrize("rows", [predicted, pays])
def test_the_tables_are_what_was_measured(rows):
    assert rows() in GUIDE, f"docs/plan.md must say:\n{rows()}"


def test_the_reasons_are_those_of_the_verdict():
    assert {name: judge(case).kind for name, case in CASES.items()} == {
        "random-48": "little",
        "random-128": "random",
        "nospec": "random",
        "agentic-64": "little",
        "agentic-80": "sessions",
        "agentic-96": "sessions",
    }


def test_there_are_commands():
    assert len(SHOWN) == 3


@pytest.mark.parametrize(("command", "output"), SHOWN, ids=range(len(SHOWN)))
def test_the_commands_run_and_print_what_is_shown(run, monkeypatch, tmp_path, command, output):
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    monkeypatch.chdir(ROOT)
    places = {"DIR": str(tmp_path), "boot.log": str(ENGINE / "boot.log")}
    words = [places.get(word, word) for word in shlex.split(command)]
    assert words[:2] == ["island-engine", "plan"]
    code, out, err = run(*words[2:])
    assert (code, err) == (0, "")
    if output:
        assert [line.rstrip() for line in out.splitlines()] == output.splitlines()


def test_the_constants_that_it_names():
    assert f"of min(N, {SESSIONS} N*)" in GUIDE
    assert f"min({CLIP:,}, g)" in GUIDE


def test_every_flag_that_it_names_exists(capsys):
    from island_engine import cli

    with pytest.raises(SystemExit):
        cli.main(["plan", "--help"])
    known = capsys.readouterr().out
    ours = set(re.findall(r"`(--[a-z-]+)", GUIDE)) - {
        "--patch-file",
        "--model-path",
        "--kv-cache-dtype",
        "--log-requests-format",
    }
    assert len(ours) > 10
    assert {flag for flag in ours if flag not in known} == set()


def test_the_picture_and_the_examples_are_there():
    assert (ROOT / "docs" / "img" / "plan.png").stat().st_size < 150_000
    assert (EXAMPLES / "gemma-4-26b-a4b" / "config.json").is_file()
