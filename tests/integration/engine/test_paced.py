"""`island-engine serve --pace`: a real server at production geometry that computes nothing, and says so everywhere."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from island_engine import cli
from island_engine.gate.arms import free_port
from island_engine.paced.profiles import PROFILES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROFILE = "gemma4-26b-h100"
ENGINE = (sys.executable, "-m", "island_engine")
FLAGS = (
    *("--pace", PROFILE, "--islands", "on", "--swa-full-tokens-ratio", "0.17", "--max-total-tokens", "980000"),
    *("--max-running-requests", "48", "--context-length", "50176", "--enable-metrics"),
)
BOOT_SECONDS = 240  # how long to wait before giving up; a boot takes 8 s on two idle cores


class Server:
    """One paced engine; its log is a file."""

    def __init__(self, log: Path) -> None:
        self.port = free_port()
        self.log = log
        with log.open("w") as out:
            command = [*ENGINE, "serve", *FLAGS, "--port", str(self.port)]
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)

    def wait(self) -> None:
        deadline = time.monotonic() + BOOT_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                self.ask("/health")
            except OSError:
                time.sleep(0.3)
            else:
                return
        pytest.fail(f"no engine: {self.log.read_text()[-4000:]}")

    def ask(self, path: str, body: dict[str, Any] | None = None) -> str:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=300) as response:  # noqa: S310 - our own engine
            return str(response.read().decode())

    def metric(self, name: str) -> float:
        return sum(
            float(value)
            for value in re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", self.ask("/metrics"), re.MULTILINE)
        )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    booted = Server(tmp_path_factory.mktemp("paced") / "log")
    try:
        booted.wait()
        yield booted
    finally:
        booted.process.kill()
        booted.process.wait()


def generate(server: Server, tokens: list[int], new: int) -> dict[str, Any]:
    sampling = {"max_new_tokens": new, "temperature": 0, "ignore_eos": True}
    answer: dict[str, Any] = json.loads(server.ask("/generate", {"input_ids": tokens, "sampling_params": sampling}))
    return answer


def ask_for_long(server: Server) -> None:
    with contextlib.suppress(OSError):  # it is not going to be answered
        generate(server, [10, 11, 12], 40_000)


def test_its_first_lines_say_that_it_is_paced(server: Server) -> None:
    said, warning, *_ = server.log.read_text().splitlines()
    resolved = json.loads(said)
    assert (resolved["paced"], resolved["window"], resolved["max_total_tokens"]) == (PROFILE, 1_024, 979_968)
    assert "PACED" in warning
    assert "dummy" in warning


def test_every_reply_says_that_its_tokens_are_dummies(server: Server) -> None:
    native = generate(server, list(range(8, 108)), 40)
    assert native["meta_info"]["completion_tokens"] == 40
    assert "dummies" in native["meta_info"]["weight_version"]
    assert native["text"].split() == ["dummy"] * 40
    message = {"model": "any", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 3}
    chat = json.loads(server.ask("/v1/chat/completions", message))
    assert "dummies" in chat["metadata"]["weight_version"]
    assert chat["choices"][0]["message"]["content"].split() == ["dummy"] * 3
    stream = server.ask("/v1/completions", {"model": "any", "prompt": "Hi", "max_tokens": 9, "stream": True})
    events = [json.loads(line) for line in re.findall(r"^data: (\{.*)", stream, re.MULTILINE)]
    text = "".join(event["choices"][0]["text"] for event in events)
    assert text.split() == ["dummy"] * 9


def test_its_metrics_say_that_it_is_paced(server: Server) -> None:
    assert server.metric("island_paced") == 1
    assert server.metric("island_enabled") == 1
    assert server.metric("island_swa_ratio") == 0.17


def test_steps_take_the_roofline_s_time(server: Server) -> None:
    profile = PROFILES[PROFILE]
    meta = generate(server, [9] * 5_000, 170)["meta_info"]
    steps = meta["spec_verify_ct"]
    least = profile.roofline.prefill([(5_000, 0)]) + (steps - 1) * profile.roofline.decode([5_000], profile.block)
    assert meta["e2e_latency"] >= least, "it may only be slower, on a busy machine"
    assert 170 / 16 <= steps <= 170


def test_requests_run_side_by_side_and_the_cache_is_the_real_one(server: Server) -> None:
    with ThreadPoolExecutor(8) as pool:
        shared = list(range(507, 7, -1)) * 4  # begins unlike the prompts above
        first = generate(server, shared, 20)["meta_info"]
        answers = list(pool.map(lambda n: generate(server, [*shared, *[8 + n] * 100], 400), range(8)))
    assert first["cached_tokens"] == 0
    assert all(answer["meta_info"]["cached_tokens"] >= 2_000 - 1_024 - 128 for answer in answers)
    assert server.metric("island_published_total") > 0
    assert server.metric("island_frontier_violations_total") == 0


@pytest.mark.parametrize("model", [(), ("--model-path", "/nowhere")])
def test_the_gate_refuses_it(model: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["gate", "--report", str(tmp_path / "report"), "--", *model, "--pace", PROFILE]) == 12
    said = capsys.readouterr().out
    assert said.startswith("ERROR PacedEngine: --pace serves dummy tokens")
    assert not list((tmp_path / "report").glob("engine-*.log")), "nothing was booted"


def test_nobody_paces_an_engine_by_a_variable_alone() -> None:
    command = [*ENGINE, "serve", "--islands", "off", "--model-path", "name/of-a-model"]
    flags = ["--swa-full-tokens-ratio", "0.17", "--max-total-tokens", "980000"]
    ended = subprocess.run(
        [*command, *flags], env={**os.environ, "ISLAND_PACE": PROFILE}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert f"ISLAND_PACE={PROFILE} would serve dummies unseen" in ended.stderr


def test_an_unknown_profile_lists_the_known_ones() -> None:
    command = [*ENGINE, "serve", "--pace", "gpt-9", "--islands", "on"]
    flags = ["--swa-full-tokens-ratio", "0.17", "--max-total-tokens", "980000"]
    ended = subprocess.run([*command, *flags], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert all(name in ended.stderr for name in PROFILES)


def test_a_signal_to_the_whole_group_ends_it_while_requests_run(server: Server) -> None:
    """Ctrl-C in a terminal reaches the schedulers too: nobody is left to answer, and nobody must be waited for."""
    asked = threading.Thread(target=ask_for_long, args=(server,))
    asked.start()
    while server.metric("sglang:num_running_reqs") < 1:
        time.sleep(0.1)
    os.killpg(server.process.pid, signal.SIGTERM)
    server.process.wait(timeout=120)
    asked.join()
