"""`island-engine bench serving`, whole: a really booted engine under SGLang's own bench_serving, on the tiny model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from island_engine.bench import report

CACHE = Path(os.environ.get("RADIX_ISLANDS_CACHE", Path.home() / ".cache" / "radix-islands"))
ENGINE = (sys.executable, "-m", "island_engine")


def test_bench_serving_drives_a_booted_engine(tmp_path: Path) -> None:
    model = CACHE / "models" / "tiny-gemma"
    subprocess.run([*ENGINE, "tiny-model", str(model)], check=True)
    # Seconds of it: a sampler that is held up for one of them still sees it run.
    load = ("--num-prompts", "6", "--input-len", "700", "--output-len", "400", "--range-ratio", "0.5")
    engine = ("--page-size", "64", "--chunked-prefill-size", "512", "--max-running-requests", "3")
    command = [
        *(*ENGINE, "bench", "serving", "--model-path", str(model), "--arm", "islands", "--pool", "0.4", "19968", *load),
        *("--json", str(tmp_path / "serving.json"), "--plot", str(tmp_path / "serving.png")),
        *("--", *engine, "--context-length", "4096"),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    found = json.loads((tmp_path / "serving.json").read_text())
    assert report.problems(found) == []
    islands = found["arms"]["islands"]
    assert islands["simulated"] is False
    assert islands["completed"] == 6
    assert 0 < islands["running_mean"] <= islands["running_max"] <= 3
    assert 0 < islands["swa_peak"] <= 1
    assert islands["output_tokens_per_s"] > 0
    assert found["geometry"]["device"] == "cpu"
    assert (tmp_path / "serving.png").stat().st_size > 10_000
