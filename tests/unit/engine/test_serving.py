"""bench serving without an engine: its commands, what it reads off /metrics, the result, table and picture."""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import Any

import pytest

from island_engine import guards
from island_engine.bench import report, serving

PAGE = """# HELP sglang:num_running_reqs running
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="m{x}"} %s
sglang:num_running_reqs_online{model_name="m"} 99.0
sglang:full_token_usage{model_name="m"} 0.5
sglang:swa_token_usage 0.25
sglang:num_retracted_requests_total{model_name="m",rank="0"} 2.0
sglang:num_retracted_requests_total{model_name="m",rank="1"} 1.0
"""
LOAD = {
    "output_throughput": 1234.56,
    "mean_e2e_latency_ms": 2500.0,
    "mean_ttft_ms": 300.0,
    "completed": 8,
    "duration": 12.34,
}


def options(*flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--arm", nargs="+", default=["islands", "stock"])
    serving.add_arguments(parser)
    return parser.parse_args(["--model-path", "m", *flags])


def test_each_arm_is_booted_with_its_switch_and_its_pools() -> None:
    given = options("--pool", "0.2", "5000", "--pool-of", "lazy", "0.32", "7000", "--", "--page-size", "16")

    def command(arm: str) -> str:
        boot = serving.Boot(arm, serving.engine_args(given, arm), env=serving.SWITCHES[arm].env)
        return " ".join(boot.command(123, ("serve",)))

    pools = "--swa-full-tokens-ratio 0.2 --max-total-tokens 5000"
    rest = "--page-size 16 --enable-metrics"
    address = "--host 127.0.0.1 --port 123"
    assert command("islands") == f"serve --islands on --model-path m {pools} {rest} {address}"
    assert command("stock") == f"serve --islands off --model-path m {pools} {rest} {address}"
    assert command("islands-unified").endswith(f"{rest} --enable-unified-memory {address}")
    assert "--islands lazy" in command("lazy")
    assert "--swa-full-tokens-ratio 0.32 --max-total-tokens 7000" in command("lazy")
    assert serving.SWITCHES["release"].env == {"SGLANG_OPT_RELEASE_PREFILL_SWA": "1"}


def test_the_load_is_bench_serving_s_and_the_same_for_every_arm() -> None:
    command = serving.load_command(options("--num-prompts", "8", "--max-concurrency", "4"), 123, Path("out"))
    said = " ".join(command[1:])
    for part in (
        "--base-url http://127.0.0.1:123",
        "--dataset-name random-ids",
        "--num-prompts 8",
        "--max-concurrency 4",
        "--random-range-ratio 0.0",
        "--seed 1",
        "--tokenize-prompt",
    ):
        assert part in said
    assert "--max-concurrency" not in serving.load_command(options(), 123, Path("out"))


def test_a_metric_is_the_sum_of_its_samples_and_no_other_s() -> None:
    assert serving.metric(PAGE % "3.0", serving.RUNNING) == 3
    assert serving.metric(PAGE % "3.0", serving.SWA) == 0.25
    assert serving.metric(PAGE % "3.0", serving.RETRACTED) == 3
    assert serving.metric("", serving.RUNNING) == 0


def test_running_is_the_mean_while_something_runs() -> None:
    samples = serving.Samples()
    for running in ("0.0", "2.0", "4.0", "0.0"):
        samples.add(PAGE % running)
    found = samples.report(LOAD, simulated=False)
    assert (found["running_mean"], found["running_max"], found["retractions"]) == (3.0, 4, 3)
    assert (found["full_peak"], found["swa_peak"]) == (0.5, 0.25)
    assert (found["output_tokens_per_s"], found["latency_mean_s"], found["ttft_mean_s"]) == (1234.6, 2.5, 0.3)
    assert found["simulated"] is False
    assert serving.Samples().report(LOAD, simulated=False)["running_mean"] == 0


class NoProgress:
    """Stands in for rich's."""

    def add_task(self, *_: Any, **__: Any) -> int:
        return 0

    def update(self, *_: Any, **__: Any) -> None:
        pass

    def advance(self, *_: Any) -> None:
        pass


def test_the_result_is_the_interface(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from rich.console import Console

    def measure(_options: argparse.Namespace, arm: str, _folder: Path) -> dict[str, Any]:
        samples = serving.Samples()
        samples.add(PAGE % ("6.0" if arm == "islands" else "3.0"))
        return {**samples.report(LOAD, simulated=False), "device": "cuda"}

    monkeypatch.setattr(serving, "measure", measure)
    found = serving.run(options("--", "--api-key", "secret"), NoProgress())  # type: ignore[arg-type]
    assert report.problems(found) == []
    assert found["geometry"]["device"] == "cuda"
    assert "secret" not in str(found)
    out = io.StringIO()
    Console(file=out, width=160).print(serving.table(found))
    assert "6.0" in out.getvalue()
    serving.plot(found, tmp_path / "serving.png")
    assert (tmp_path / "serving.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--pool-of", "island", "0.2", "5000"), "--pool-of island: use an arm of lazy, stock"),
        (("--", "--islands", "on"), "--islands is not allowed among the engine arguments"),
        (("--", "--port", "1"), "--port is not allowed among the engine arguments"),
    ],
)
def test_what_cannot_be_measured_is_one_sentence(flags: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(guards.RefusedError) as refused:
        serving.run(options(*flags), NoProgress())  # type: ignore[arg-type]
    assert sentence in refused.value.sentence
