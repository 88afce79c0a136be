"""What `island-engine serve` refuses before it boots: exit code 2, one sentence that names the flag and the value."""

from __future__ import annotations

import importlib.metadata
import json
import os
import socket
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from island_engine import SGLANG_VERSION, cli, guards, launch, refusals
from island_engine.islands import mutation

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

FIXED = ("--swa-full-tokens-ratio", "0.17", "--max-total-tokens", "980000")


@pytest.fixture(autouse=True)
def _sglang_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: SGLANG_VERSION if name == "sglang" else real(name))
    for name in (mutation.MUTATE, mutation.ALLOW, refusals.EAGER, refusals.MODE, refusals.INTERVAL):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A folder that looks like a model."""
    (tmp_path / "config.json").write_text(json.dumps({"text_config": {"sliding_window": 1024}}))
    return str(tmp_path)


@pytest.fixture
def booted(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """SGLang's arguments of every boot that was not refused."""
    boots: list[list[str]] = []

    def serve(_options: argparse.Namespace, argv: list[str]) -> int:
        boots.append(list(argv))
        return 0

    monkeypatch.setattr(launch, "serve", serve)
    return boots


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def serve(model: str, *more: str, islands: str = "on", fixed: tuple[str, ...] = FIXED) -> int:
    """A boot in a process of its own, as far as variables go."""
    for name in (refusals.MODE, refusals.INTERVAL):
        os.environ.pop(name, None)
    return serve_here(model, *more, islands=islands, fixed=fixed)


def serve_here(model: str, *more: str, islands: str = "on", fixed: tuple[str, ...] = FIXED) -> int:
    port = () if "--port" in more else ("--port", str(free_port()))
    return cli.main(["serve", "--islands", islands, "--model-path", model, *fixed, *port, *more])


REFUSED = [
    (("--swa-full-tokens-ratio", "0"), "on", ["--swa-full-tokens-ratio 0.0", "above 0 and at most 1"]),
    (("--swa-full-tokens-ratio", "1.5"), "on", ["--swa-full-tokens-ratio 1.5", "above 0 and at most 1"]),
    (("--swa-full-tokens-ratio", "nan"), "on", ["--swa-full-tokens-ratio nan", "above 0 and at most 1"]),
    (("--max-total-tokens", "0"), "on", ["--max-total-tokens 0", "positive"]),
    (("--page-size", "-1"), "off", ["--page-size -1", "positive"]),
    (("--chunked-prefill-size", "-1"), "off", ["--chunked-prefill-size -1", "positive"]),
    (("--chunked-prefill-size", "1000"), "on", ["--chunked-prefill-size 1000", "--page-size 64", "use 1024"]),
    (("--island-decode-interval", "0"), "on", ["--island-decode-interval 0", "positive"]),
    (("--island-decode-interval", "128"), "off", ["--island-decode-interval", "--islands on"]),
    (("--island-decode-interval", "128"), "lazy", ["--island-decode-interval", "--islands on"]),
    (("--radix-cache-backend", "islands"), "off", ["--radix-cache-backend", "--islands on, off or lazy"]),
    (("--radix-cache-backend=lazy",), "on", ["--radix-cache-backend", "--islands on, off or lazy"]),
    (("--radix-c", "lazy"), "on", ["--radix-c ", "--islands on, off or lazy"]),
    (("--config", "engine.yaml"), "on", ["--config", "--islands on, off or lazy"]),
    (("--disable-radix-cache",), "on", ["--disable-radix-cache", "--islands off"]),
    (("--disable-radix-cache",), "lazy", ["--disable-radix-cache", "--islands off"]),
    (("--disable-radix",), "on", ["--disable-radix", "--islands off"]),
    (("--model", "other"), "on", ["--model ", "--model-path"]),
    (("--swa-full", "0.9"), "on", ["--swa-full ", "--swa-full-tokens-ratio"]),
    (("--max-total=5",), "off", ["--max-total ", "--max-total-tokens"]),
    (("--chunked-prefill", "64"), "on", ["--chunked-prefill ", "--chunked-prefill-size"]),
    (("--port", "0"), "on", ["--port 0", "1 to 65535"]),
    (("--port", "65536"), "on", ["--port 65536", "1 to 65535"]),
]


@pytest.mark.parametrize(("flags", "islands", "parts"), REFUSED, ids=[" ".join((r[1], *r[0])) for r in REFUSED])
def test_a_refusal_is_one_sentence(
    flags: tuple[str, ...],
    islands: str,
    parts: list[str],
    model: str,
    booted: list[list[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert serve(model, *flags, islands=islands) == 2
    said = capsys.readouterr()
    assert booted == []
    assert said.out == ""
    assert said.err.startswith("island-engine: ")
    assert said.err.count("\n") == 1
    for part in parts:
        assert part in said.err


def test_a_taken_port_and_its_remedy(model: str, booted: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert serve(model, "--port", port) == 2
    assert f"--port {port} on 127.0.0.1: Address already in use; use a free --port" in capsys.readouterr().err
    assert booted == []


def test_a_folder_without_a_model(tmp_path: Path, booted: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert serve(str(tmp_path / "nothing")) == 2
    assert f"--model-path {tmp_path}/nothing: no config.json there" in capsys.readouterr().err
    assert booted == []


GEMMA = "google/gemma-4-26B-A4B-it"


class Hub:
    """What the hub's client says; it is no part of this environment. `asked`: models and revisions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cached, self.fault, self.asked = None, None, []
        self.constants = SimpleNamespace(HF_HUB_OFFLINE=False, ENDPOINT="https://hub.example")
        self.errors = SimpleNamespace(HfHubHTTPError=LookupError, FileMetadataError=ArithmeticError)
        monkeypatch.setitem(sys.modules, "huggingface_hub", self)
        monkeypatch.setitem(sys.modules, "httpx", SimpleNamespace(TransportError=ConnectionError))

    def try_to_load_from_cache(self, _name: str, _file: str, revision: str | None) -> Any:
        return self.cached

    def hf_hub_url(self, name: str, _file: str, revision: str | None) -> tuple[str, str | None]:
        return name, revision

    def get_hf_file_metadata(self, what: tuple[str, str | None], timeout: float) -> None:
        assert timeout < 10
        self.asked.append(what)
        if self.fault:
            raise self.fault


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    return Hub(monkeypatch)


@pytest.mark.parametrize("fault", [None, LookupError("404"), ArithmeticError("no etag")])
def test_a_name_of_the_hub_is_left_to_sglang(
    hub: Hub, fault: Any, booted: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    hub.fault = fault
    assert serve(GEMMA, "--revision", "v2") == 0
    assert json.loads(capsys.readouterr().out)["window"] is None
    assert booted[0][:2] == ["--model-path", GEMMA]
    assert hub.asked == [(GEMMA, "v2")]


def test_a_hub_out_of_reach_is_told_at_once(
    hub: Hub, booted: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    hub.fault = ConnectionError("no name server")
    assert serve(GEMMA) == 2
    assert (
        f"--model-path {GEMMA}: https://hub.example cannot be reached (no name server): give" in capsys.readouterr().err
    )
    hub.constants.HF_HUB_OFFLINE = True
    assert serve(GEMMA) == 2
    assert f"--model-path {GEMMA}: not in the hub's cache, and HF_HUB_OFFLINE is set" in capsys.readouterr().err
    assert booted == []
    hub.cached = "/cache/config.json"
    assert serve(GEMMA) == 0
    assert hub.asked == [(GEMMA, None)]


def test_the_wrong_sglang(model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _name: "0.5.24")
    with pytest.raises(guards.RefusedError) as refused:
        guards.check_version()
    assert refused.value.sentence == f"sglang 0.5.24 is installed: this plugin is for sglang=={SGLANG_VERSION} exactly"

    def missing(_name: str) -> str:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(guards.RefusedError) as refused:
        guards.check_version()
    assert f"install sglang=={SGLANG_VERSION}" in refused.value.sentence


def test_ngram_needs_what_compiles_its_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    for algorithm in (None, "EAGLE"):
        guards.check_compiler(algorithm)
    said = []
    for name in ("c++", "ninja"):
        with pytest.raises(guards.RefusedError) as refused:
            guards.check_compiler("NGRAM")
        said.append(refused.value.sentence)
        (tmp_path / name).touch(mode=0o755)
    assert "NGRAM" in said[0]
    assert "and c++ and ninja cannot be found: use an image with" in said[0]
    assert "start, and ninja cannot be found" in said[1]
    guards.check_compiler("NGRAM")
    monkeypatch.setenv("CXX", "clang++")
    with pytest.raises(guards.RefusedError) as refused:
        guards.check_compiler("NGRAM")
    assert "and clang++ cannot be found" in refused.value.sentence


def test_prefill_islands_switched_off_by_sglangs_own_variable(
    model: str, booted: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(refusals.EAGER, "False")
    assert serve(model) == 2
    assert f"{refusals.EAGER}=False turns prefill islands off: unset it" in capsys.readouterr().err
    assert serve(model, islands="off") == 0


# --- the planted fault --------------------------------------------------------------------------------------------


def test_a_planted_fault_must_be_allowed_by_name(
    model: str, booted: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(mutation.MUTATE, "frontier")
    assert serve(model) == 2
    assert f"set {mutation.ALLOW}=1" in capsys.readouterr().err
    monkeypatch.setenv(mutation.ALLOW, "yes")
    assert serve(model) == 2
    monkeypatch.setenv(mutation.ALLOW, "1")
    capsys.readouterr()
    assert serve(model) == 0
    assert json.loads(capsys.readouterr().out)["mutation"] == "frontier"


def test_an_unknown_fault_is_refused_even_when_allowed(
    model: str, booted: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(mutation.MUTATE, "everything")
    monkeypatch.setenv(mutation.ALLOW, "1")
    assert serve(model) == 2
    assert f"{mutation.MUTATE}=everything is not a mutation: use frontier, " in capsys.readouterr().err


def test_a_fault_that_nobody_asked_for_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert mutation.asked() == ""
    monkeypatch.setenv(mutation.ALLOW, "1")
    assert mutation.asked() == ""


# --- what boots ---------------------------------------------------------------------------------------------------


def test_the_arguments_are_spelled_out_and_the_rest_is_verbatim(model: str, booted: list[list[str]]) -> None:
    rest = ["--dtype", "float32", "--tp", "8", "--served-model-name=x", "--port-offset-of-nobody"]
    for islands, backend in (
        ("on", ["--radix-cache-backend", "islands"]),
        ("off", []),
        ("lazy", ["--radix-cache-backend", "lazy"]),
    ):
        assert serve(model, "--port", str(port := free_port()), *rest, islands=islands) == 0
        assert booted.pop() == [
            *("--model-path", model, "--swa-full-tokens-ratio", "0.17", "--max-total-tokens", "980000"),
            *("--page-size", "64", "--chunked-prefill-size", "16384", "--host", "127.0.0.1", "--port", str(port)),
            *backend,
            *rest,
        ]


def test_the_first_line_says_what_was_resolved(
    model: str, booted: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve(model, fixed=("--swa-full-tokens-ratio", "0.17", "--max-total-tokens", "980001")) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["islands"] == "on"
    assert said["max_total_tokens"] == 979_968  # whole pages
    assert said["swa_tokens"] == 166_592
    assert said["window"] == 1024
    assert said["decode_interval"] == 4096
    assert said["sglang"] == SGLANG_VERSION
    assert serve(model, islands="off") == 0
    assert json.loads(capsys.readouterr().out)["decode_interval"] is None


def test_the_scheduler_is_told_the_interval(model: str, booted: list[list[str]]) -> None:
    assert serve(model) == 0
    assert guards.interval() == 4096
    assert serve(model, "--island-decode-interval", "320") == 0
    assert guards.interval() == 320
    assert serve(model, islands="off") == 0
    assert guards.interval() is None


CONTRADICTIONS = [
    ("on", (), (refusals.INTERVAL, "7"), "unset it, or use --islands on --island-decode-interval 7"),
    ("on", ("--island-decode-interval", "320"), (refusals.INTERVAL, "7"), "ISLAND_DECODE_INTERVAL=7 contradicts"),
    ("off", (), (refusals.INTERVAL, "7"), "ISLAND_DECODE_INTERVAL=7 contradicts"),
    ("on", (), (refusals.INTERVAL, "often"), "ISLAND_DECODE_INTERVAL=often contradicts"),
    ("on", (), (refusals.MODE, "off"), "ISLAND_MODE=off contradicts --islands on: unset it"),
    ("off", (), (refusals.MODE, "on"), "ISLAND_MODE=on contradicts --islands off: unset it"),
]


@pytest.mark.parametrize(("islands", "flags", "variable", "says"), CONTRADICTIONS)
def test_a_variable_that_contradicts_a_flag(
    islands: str,
    flags: tuple[str, ...],
    variable: tuple[str, str],
    says: str,
    model: str,
    booted: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(*variable)
    assert serve_here(model, *flags, islands=islands) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
    assert booted == []


def test_a_variable_that_says_what_the_flag_says(
    model: str, booted: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(refusals.INTERVAL, "320")
    monkeypatch.setenv(refusals.MODE, "on")
    assert serve_here(model, "--island-decode-interval", "320") == 0
    assert guards.interval() == 320


# --- in the scheduler ---------------------------------------------------------------------------------------------


def context(**given: object) -> Any:
    usual = {
        "is_hybrid_swa": True,
        "is_hybrid_ssm": False,
        "enable_hierarchical_cache": False,
        "disable_radix_cache": False,
        "full_tokens_per_layer": 4096,
        "params": SimpleNamespace(swa_gates_prefix_match=True),
    }
    return SimpleNamespace(**{**usual, **given})


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"is_hybrid_swa": False}, "sliding-window layers"),
        ({"is_hybrid_ssm": True}, "Mamba"),
        ({"full_tokens_per_layer": 0}, "no layer with full attention"),
        ({"params": SimpleNamespace(swa_gates_prefix_match=False)}, "outside of the radix cache"),
        ({"enable_hierarchical_cache": True}, "--enable-hierarchical-cache"),
        ({"disable_radix_cache": True}, "the radix cache, which is disabled"),
    ],
)
def test_models_and_modes_that_the_cache_does_not_know(
    given: dict[str, object], names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    guards.check_context(context())
    with pytest.raises(ValueError, match=names) as refused:
        guards.check_context(context(**given))
    assert "use SGLang's own cache (no --radix-cache-backend)" in str(refused.value)
    monkeypatch.setenv(refusals.MODE, "on")
    with pytest.raises(ValueError, match=r"use --islands off$"):
        guards.check_context(context(**given))


def test_a_pool_in_which_a_lone_prompt_might_wait_for_ever_names_what_it_needs() -> None:
    guards.check_room(3 * 64 + 4 * 8, window=64, page=8)
    with pytest.raises(ValueError, match=r"has 223 tokens, and islands need 224 .* --swa-full-tokens-ratio"):
        guards.check_room(3 * 64 + 4 * 8 - 1, window=64, page=8)


def test_the_exact_type_is_asked_for() -> None:
    class Child(dict):  # type: ignore[type-arg]
        """A capability check would take it."""

    guards.check_type({}, dict)
    with pytest.raises(TypeError, match="SGLang built Child where dict was asked for: use SGLang's own cache"):
        guards.check_type(Child(), dict)


# --- the command line ---------------------------------------------------------------------------------------------


def test_help_and_refusals_import_neither_torch_nor_sglang(tmp_path: Path) -> None:
    """A pod with a wrong flag must say so at once, and an operator's machine has no torch."""
    program = f"""
import sys
from island_engine import cli
assert cli.main(["serve", "--islands", "on", "--model-path", {str(tmp_path)!r}, "--swa-full-tokens-ratio", "2",
                 "--max-total-tokens", "64"]) == 2
try:
    cli.main(["serve", "--help"])
except SystemExit as done:
    assert done.code == 0
print(sorted(name for name in ("torch", "sglang", "transformers", "prometheus_client", "numpy") if name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["serve"], "--islands"),
        (["serve", "--islands", "maybe", "--model-path", "m", *FIXED], "invalid choice: 'maybe'"),
        (["serve", "--islands", "on", "--model-path", "m", "--max-total-tokens", "5"], "--swa-full-tokens-ratio"),
        (["tiny-model"], "directory"),
        (["server"], "invalid choice: 'server'"),
    ],
)
def test_a_wrong_command_line_is_named(argv: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(argv)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err.splitlines()[-1]


def test_a_model_that_cannot_be_made_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert cli.main(["tiny-model", str(tmp_path / "model")]) == 2
    assert "make venv-engine" in capsys.readouterr().err
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    (tmp_path / "file").touch()
    assert cli.main(["tiny-model", str(tmp_path / "file" / "model")]) == 2
    assert "file/model: " in (said := capsys.readouterr().err)
    assert len(said.strip().splitlines()) == 1
