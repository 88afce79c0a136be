"""Real boots on the tiny model in fp32: `island-engine serve` on and off, and plain SGLang with our backend. The same
tokens, and who counts what.

SGLang on a CPU, one after the other; a minute or two. Ours are told to stop while a request runs.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from island_engine.gate.arms import free_port
from island_engine.gate.client import EngineClient, Prompt

CACHE = Path(os.environ.get("RADIX_ISLANDS_CACHE", Path.home() / ".cache" / "radix-islands"))
ENGINE = (sys.executable, "-m", "island_engine")
PLAIN = (sys.executable, "-c", "from sglang.cli.main import main; main()")  # the console script `sglang`
ISLANDS = ("--radix-cache-backend", "islands")
# The decode interval exceeds window (128) and page together, so that decode islands leave tombstones behind them.
INTERVAL = 320
FLAGS = (
    *("--dtype", "float32", "--page-size", "64", "--chunked-prefill-size", "512", "--context-length", "16384"),
    *("--max-total-tokens", "19968", "--swa-full-tokens-ratio", "0.4", "--max-running-requests", "8"),
    "--enable-metrics",
)
BOOT_SECONDS = 240  # how long to wait before giving up; a boot takes 12 s on two idle cores


@pytest.fixture(scope="session")
def model() -> Path:
    """The tiny model, made once per machine."""
    path = CACHE / "models" / "tiny-gemma"
    subprocess.run([*ENGINE, "tiny-model", str(path)], check=True)
    return path


def prompt(length: int, seed: int) -> list[int]:
    rng = random.Random(seed)  # noqa: S311 - repeatable on purpose
    return [rng.randrange(4, 512) for _ in range(length)]


class Engine:
    """One `serve` process; its log is a file."""

    def __init__(self, model: Path, log: Path, *flags: str, program: tuple[str, ...] = ENGINE, **environ: str) -> None:
        self.port = free_port()
        self.log = log
        arguments = ["serve", "--model-path", str(model), *FLAGS, "--port", str(self.port), *flags]
        with log.open("w") as out:
            self.process = subprocess.Popen(
                [*program, *arguments], stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **environ}
            )

    def ready(self) -> Engine:
        """Wait until it answers; its log in the failure when it does not."""
        deadline = time.monotonic() + BOOT_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                self.open("/health").close()
            except OSError:
                time.sleep(0.3)
            else:
                return self
        self.process.kill()
        pytest.fail(f"no engine: {self.log.read_text()[-4000:]}")

    def open(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """The response, as a file."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        return urllib.request.urlopen(request, timeout=300)  # noqa: S310 - our own engine

    def generate(self, ids: list[int], new: int) -> dict[str, Any]:
        """`output_ids` and `meta_info` of one greedy request."""
        with self.open("/generate", greedy(ids, new)) as response:
            answer: dict[str, Any] = json.load(response)
        return answer

    def metrics(self) -> dict[str, float]:
        """island_* samples by name and labels."""
        with self.open("/metrics") as response:
            text = response.read().decode()
        found: dict[str, float] = {}
        for name, labels, value in re.findall(r"^(island_\w+)(?:\{(.*)\})? (\S+)$", text, re.MULTILINE):
            kept = ",".join(f"{k}={v}" for k, v in re.findall(r'(\w+)="(.*?)"', labels) if k != "pid")
            found[f"{name}{{{kept}}}" if kept else name] = float(value)
        return found


def greedy(ids: list[int], new: int, **more: Any) -> dict[str, Any]:
    """The body of a request."""
    return {
        "input_ids": ids,
        "sampling_params": {"temperature": 0, "max_new_tokens": new, "ignore_eos": True},
        **more,
    }


def tidings(port: int, new: int, every: int) -> list[int]:
    """How many tokens of a request the gate has been told of, each time that it was."""

    async def ask() -> list[int]:
        told: list[int] = []

        async def heard(tokens: tuple[int, ...], _: int) -> None:
            told.append(len(tokens))

        client = EngineClient(f"http://127.0.0.1:{port}", "on")
        try:
            await client.generate([Prompt(tuple(prompt(90, 33)), new)], heard, every)
        finally:
            await client.close()
        return told

    return asyncio.run(ask())


@dataclass
class Arm:
    """What one boot did."""

    first_line: dict[str, Any]
    tokens: dict[str, list[int]] = field(default_factory=dict)
    cached: dict[str, int] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    told: list[int] = field(default_factory=list)
    planned: list[dict[str, Any]] = field(default_factory=list)  # `plan --check` with the engine, with its log
    first_event: dict[str, Any] = field(default_factory=dict)  # of the request that runs while the engine is stopped
    last_event: dict[str, Any] = field(default_factory=dict)
    exit_code: int | None = None


def play(model: Path, log: Path, *flags: str) -> Arm:
    """Boot, run every class of request, stop it while one runs."""
    engine = Engine(model, log, *flags).ready()
    try:
        arm = Arm(json.loads(log.read_text().splitlines()[0]))

        def ask(name: str, ids: list[int], new: int) -> list[int]:
            answer = engine.generate(ids, new)
            arm.tokens[name], arm.cached[name] = answer["output_ids"], answer["meta_info"]["cached_tokens"]
            return arm.tokens[name]

        ask("reference", prompt(300, 3), 32)
        ask("cold", prompt(1300, 1), 48)
        ask("hit", prompt(1300, 1), 48)
        path = prompt(300, 7)
        path += ask("long", path, 1000)
        ask("extension", path + prompt(20, 9), 40)
        ask("branch", path[: 300 + 2 * INTERVAL] + prompt(20, 10), 40)

        pair = [threading.Thread(target=ask, args=(f"pair {n}", prompt(90 + n, 20 + n), 700)) for n in range(2)]
        for thread in pair:
            thread.start()
        for thread in pair:
            thread.join()
        arm.metrics = engine.metrics()
        arm.told = tidings(engine.port, 400, every=32)
        plan = (*ENGINE, "plan", "--model", str(model), "--kv-dtype", "float32", "--json", "--check")
        for source in (f"http://127.0.0.1:{engine.port}", str(log)):
            said = subprocess.run([*plan, source], capture_output=True, text=True, check=True)  # 1: they differ
            arm.planned.append(json.loads(said.stdout))

        with engine.open("/generate", greedy(prompt(100, 13), 1200, stream=True)) as stream:
            events = [json.loads(stream.readline().removeprefix(b"data: "))]  # so it runs
            engine.process.send_signal(signal.SIGTERM)
            lines = [line.removeprefix(b"data: ").strip() for line in stream]
        events += [json.loads(line) for line in lines if line and line != b"[DONE]"]
        arm.first_event, arm.last_event = events[0]["meta_info"], events[-1]["meta_info"]
        arm.exit_code = engine.process.wait(timeout=120)
        return arm
    finally:
        engine.process.kill()
        engine.process.wait()


@pytest.fixture(scope="module")
def arms(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Arm]:
    logs = tmp_path_factory.mktemp("engines")
    return {
        "on": play(model, logs / "on.log", "--islands", "on", "--island-decode-interval", str(INTERVAL)),
        "off": play(model, logs / "off.log", "--islands", "off"),
    }


def test_every_token_is_the_same_on_and_off(arms: dict[str, Arm]) -> None:
    assert len(arms["on"].tokens) == 8
    assert arms["on"].tokens == arms["off"].tokens


def test_the_tokens_are_those_of_hugging_face(arms: dict[str, Arm], model: Path) -> None:
    import torch
    from transformers import Gemma4ForCausalLM

    reference = Gemma4ForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    ids = prompt(300, 3)
    with torch.no_grad():
        out = reference.generate(torch.tensor([ids]), max_new_tokens=32, do_sample=False, eos_token_id=None)
    assert arms["on"].tokens["reference"] == out[0, 300:].tolist()


def test_hits_go_through_decode_islands(arms: dict[str, Arm]) -> None:
    cached = arms["on"].cached
    assert cached["cold"] == 0
    assert cached["hit"] >= 1300 - 2 * 64
    assert cached["extension"] >= 1300 - 2 * 64  # deep in what was generated
    assert cached["branch"] >= 300 + INTERVAL - 64  # the island before the branch
    assert arms["on"].metrics["island_tombstone_hits_total"] >= 2


def test_the_counters_of_both_arms(arms: dict[str, Arm]) -> None:
    on, off = arms["on"].metrics, arms["off"].metrics
    assert (on["island_enabled"], off["island_enabled"]) == (1, 0)
    assert on["island_swa_ratio"] == off["island_swa_ratio"] == 0.4
    for name in (
        "island_published_total{phase=prefill}",
        "island_published_total{phase=decode}",
        "island_tombstoned_tokens_total",
        "island_swa_freed_tokens_total",
        "island_hit_tokens_total{origin=finished}",
        "island_tombstone_hits_total",
        "island_live_tokens",
    ):
        assert on[name] > 0, name
        assert off.get(name, 0) == 0, name
    assert on["island_frontier_violations_total"] == 0
    assert on["island_hold_tokens{stat=max}"] == 0, "nobody runs"


@pytest.mark.parametrize("mode", ["on", "off"])
def test_the_gate_is_told_of_a_running_request_as_often_as_it_asks(arms: dict[str, Arm], mode: str) -> None:
    told = arms[mode].told
    assert {*told} <= {*range(1, 400, 32), 400}  # SGLang puts tidings together that nobody has fetched yet
    assert len(told) > 1
    assert told[-1] == 400


@pytest.mark.parametrize("mode", ["on", "off"])
def test_the_plan_agrees_with_the_engine_and_its_log(arms: dict[str, Arm], mode: str) -> None:
    running, log = arms[mode].planned
    assert running["kv_bytes"] == 19_968 * 256 + 7_936 * 1_280  # fp32: 1 full layer and 5 sliding ones, 2 heads of 16
    assert log["kv_bytes"] > running["kv_bytes"], "what there is room for"
    for said in (running, log):
        assert (said["page"], said["chunk"], said["max_running_requests"]) == (64, 512, 8)
        assert len(said["check"]) >= 5
        assert all(row["agrees"] for row in said["check"])


def test_the_first_line_says_what_was_resolved(arms: dict[str, Arm]) -> None:
    assert arms["on"].first_line["islands"] == "on"
    assert arms["on"].first_line["decode_interval"] == INTERVAL
    assert arms["on"].first_line["window"] == 128
    assert arms["off"].first_line["islands"] == "off"


@pytest.mark.parametrize("mode", ["on", "off"])
def test_sigterm_lets_what_runs_finish_and_exits_0(arms: dict[str, Arm], mode: str) -> None:
    assert arms[mode].first_event["finish_reason"] is None
    assert arms[mode].last_event["finish_reason"] == {"type": "length", "length": 1200}
    assert arms[mode].last_event["completion_tokens"] == 1200
    assert arms[mode].exit_code == 0


# --- plain SGLang: pip install radix-islands[engine], and one flag ------------------------------------------------


@pytest.fixture(scope="module")
def plain(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Arm:
    log = tmp_path_factory.mktemp("plain") / "log"
    engine = Engine(model, log, *ISLANDS, program=PLAIN, ISLAND_DECODE_INTERVAL=str(INTERVAL)).ready()
    try:
        arm = Arm({})
        for name, ids, new in (("reference", prompt(300, 3), 32), ("long", prompt(300, 7), 2 * INTERVAL)):
            arm.tokens[name] = engine.generate(ids, new)["output_ids"]
        again = engine.generate(prompt(300, 7) + arm.tokens["long"] + prompt(20, 9), 8)
        arm.cached["extension"] = again["meta_info"]["cached_tokens"]
        arm.metrics = engine.metrics()
        return arm
    finally:
        engine.process.kill()
        engine.process.wait()


def test_plain_sglang_with_our_backend_answers_the_same(arms: dict[str, Arm], plain: Arm) -> None:
    assert plain.tokens["reference"] == arms["on"].tokens["reference"]
    assert plain.tokens["long"] == arms["on"].tokens["long"][: 2 * INTERVAL]
    assert plain.cached["extension"] >= 300 + INTERVAL


def test_plain_sglang_counts_the_same(arms: dict[str, Arm], plain: Arm) -> None:
    assert plain.metrics.keys() == arms["on"].metrics.keys()
    assert plain.metrics["island_enabled"] == 1
    assert plain.metrics["island_swa_ratio"] == 0.4
    assert plain.metrics["island_published_total{phase=prefill}"] >= 2
    assert plain.metrics["island_published_total{phase=decode}"] >= 1
    assert plain.metrics["island_hit_tokens_total{origin=finished}"] == plain.cached["extension"]
    assert plain.metrics["island_frontier_violations_total"] == 0


# --- boots that die -----------------------------------------------------------------------------------------------


def test_a_flag_that_sglang_does_not_know_is_in_the_last_lines(model: Path, tmp_path: Path) -> None:
    engine = Engine(model, tmp_path / "log", "--islands", "on", "--no-such-flag")
    assert engine.process.wait(timeout=BOOT_SECONDS) == 2
    assert "unrecognized arguments: --no-such-flag" in engine.log.read_text()[-2048:]


def test_plain_sglang_refuses_in_one_sentence(model: Path, tmp_path: Path) -> None:
    flags = (*ISLANDS, "--enable-streaming-session")
    engine = Engine(model, tmp_path / "log", *flags, program=PLAIN)
    assert engine.process.wait(timeout=BOOT_SECONDS) == 2
    log = engine.log.read_text()
    (said,) = [line for line in log.splitlines() if line.startswith("island-engine: ")]
    assert said.startswith("island-engine: --enable-streaming-session does not go with islands: ")
    assert said.endswith("or use SGLang's own cache (no --radix-cache-backend)")
    assert "Traceback" not in log


def test_a_flag_that_does_not_fit_is_refused_by_our_launcher_too(model: Path, tmp_path: Path) -> None:
    engine = Engine(model, tmp_path / "log", "--islands", "on", "--enable-streaming-session")
    assert engine.process.wait(timeout=BOOT_SECONDS) == 2
    last = engine.log.read_text().splitlines()[-1]
    assert last.startswith("island-engine: --enable-streaming-session does not go with islands: ")
    assert last.endswith("drop it or use --islands off")


def test_a_scheduler_that_dies_says_why_in_the_last_line(model: Path, tmp_path: Path) -> None:
    broken = tmp_path / "model"
    broken.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (broken / name).write_bytes((model / name).read_bytes())  # and no weights
    engine = Engine(broken, tmp_path / "log", "--islands", "on")
    assert engine.process.wait(timeout=BOOT_SECONDS) == 1
    last = engine.log.read_text().splitlines()[-1]
    assert last.startswith("island-engine: the engine did not start: ")
    assert "weights" in last
