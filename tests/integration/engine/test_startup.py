"""What does not fit is refused, what was built is checked; whoever ends last says why (island_engine/startup.py)."""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sglang.srt.beam_search.coordinator import BeamCoordinator
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.plugins.hook_registry import HookRegistry
from sglang.srt.server_args import ServerArgs, prepare_server_args
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from transformers import DeepseekV4Config, FalconH1Config, Gemma3TextConfig, Llama4Config, LlamaConfig

from island_engine import guards, launch, plugin, refusals, startup, tiny_model
from island_engine.bench.rig import Rig, Sizes
from island_engine.islands import mutation
from island_engine.islands.cache import IslandRadixCache
from island_engine.islands.lazy import LazyRadixCache
from island_engine.platform.attention import SdpaBackend

CACHES = {"on": IslandRadixCache, "off": UnifiedRadixCache, "lazy": LazyRadixCache}


class Child(IslandRadixCache):
    """A subclass is not the cache that was asked for."""


def scheduler(cache_class: type, backend: type = SdpaBackend) -> Any:
    attention = object.__new__(backend)
    worker = SimpleNamespace(model_runner=SimpleNamespace(attn_backend=attention))
    return SimpleNamespace(tree_cache=Rig(cache_class).cache, tp_worker=worker)


@pytest.mark.parametrize("built", [*CACHES.values(), Child])
@pytest.mark.parametrize("mode", CACHES)
def test_only_the_exact_cache_of_the_mode_passes(mode: str, built: type) -> None:
    if built is CACHES[mode]:
        startup.check(scheduler(built), mode)
    else:
        with pytest.raises(RuntimeError, match=f"--islands {mode} asks for .* but .*{built.__name__} was built"):
            startup.check(scheduler(built), mode)


def test_another_attention_on_a_cpu_is_refused() -> None:
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend

    with pytest.raises(RuntimeError, match="TorchNativeAttnBackend was built: drop it"):
        startup.check(scheduler(IslandRadixCache, TorchNativeAttnBackend), "on")


def test_the_reason_outlives_the_scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(startup.MODE, "on")
    monkeypatch.setenv(startup.LAST_WORDS, str(tmp_path / "words"))

    def dies(_scheduler: Any, _arguments: Any) -> None:
        raise ValueError("no such layer: drop --x\nand a trace")

    with pytest.raises(ValueError, match="no such layer"):
        startup.around_scheduler(dies, SimpleNamespace(), ServerArgs(model_path="dummy"))
    assert (tmp_path / "words").read_text() == "no such layer: drop --x"


# --- what is refused before a process starts, on every path -------------------------------------------------------


@pytest.fixture(scope="module")
def model() -> str:
    """The tiny model, made once per machine."""
    cache = Path(os.environ.get("RADIX_ISLANDS_CACHE", Path.home() / ".cache" / "radix-islands"))
    tiny_model.make(cache / "models" / "tiny-gemma")
    return str(cache / "models" / "tiny-gemma")


def resolved(model: str, *flags: str) -> ServerArgs:
    """What SGLang makes of a command line."""
    arguments = prepare_server_args(["--model-path", model, "--chunked-prefill-size", "512", *flags])
    arguments.resolve_once()
    return arguments


@pytest.fixture
def islands(monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """As in an engine that nobody's launcher started: the plugin is loaded, and a flag asks for it."""
    monkeypatch.delenv(refusals.MODE, raising=False)
    return ("--radix-cache-backend", "islands")


def test_plain_sglang_is_refused_in_one_sentence_before_anything_starts(
    model: str, islands: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(guards.RefusedError) as refused:
        startup.before_processes(None, resolved(model, *islands, "--enable-session-radix-cache"))
    assert refused.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == f"island-engine: {refused.value.sentence}"
    assert said.startswith("island-engine: --enable-session-radix-cache does not go with islands: ")


def test_under_our_launcher_the_command_line_says_it(
    model: str, islands: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(refusals.MODE, "on")
    with pytest.raises(guards.RefusedError) as refused:
        startup.before_processes(None, resolved(model, *islands, "--enable-streaming-session"))
    assert refused.value.sentence.endswith("drop it or use --islands off")
    assert "island-engine" not in capsys.readouterr().err


def test_a_scheduler_that_somebody_else_starts_is_refused_too(model: str, islands: tuple[str, ...]) -> None:
    built: list[Any] = []
    arguments = resolved(model, *islands, "--disable-radix-cache")
    with pytest.raises(ValueError, match="--disable-radix-cache does not go with islands"):
        startup.around_scheduler(lambda *given: built.append(given), SimpleNamespace(), arguments)
    assert built == []


@pytest.mark.parametrize(
    ("variable", "says"),
    [
        ((refusals.INTERVAL, "often"), "ISLAND_DECODE_INTERVAL=often is not a number"),
        ((refusals.EAGER, "0"), "turns prefill islands off"),
        ((mutation.MUTATE, "frontier"), "plants wrong answers"),
    ],
)
def test_variables_are_checked_on_the_plain_path(
    variable: tuple[str, str], says: str, model: str, islands: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = resolved(model, *islands)
    startup.before_processes(None, arguments)
    monkeypatch.setenv(*variable)
    with pytest.raises(guards.RefusedError) as refused:
        startup.before_processes(None, arguments)
    assert says in refused.value.sentence
    startup.before_processes(None, resolved(model))  # SGLang's own cache is nobody's business


@pytest.mark.parametrize("asked", [("--radix-cache-backend", "islands"), ()], ids=["on", "off"])
def test_ngram_where_nothing_compiles_is_refused_before_anything_starts(
    asked: tuple[str, ...], model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(refusals.MODE, "on" if asked else "off")
    ngram = ("--speculative-algorithm", "NGRAM", "--speculative-ngram-max-bfs-breadth", "1", "--device", "cpu")
    arguments, plain = resolved(model, *asked, *ngram), resolved(model, *asked)
    startup.before_processes(None, arguments)
    monkeypatch.setenv("PATH", str(tmp_path))
    startup.before_processes(None, plain)
    with pytest.raises(guards.RefusedError) as refused:
        startup.before_processes(None, arguments)
    assert "--speculative-algorithm NGRAM" in refused.value.sentence
    assert "c++ and ninja cannot be found" in refused.value.sentence
    monkeypatch.delenv(refusals.MODE)
    if not asked:  # plain SGLang is nobody's business
        startup.before_processes(None, arguments)


def test_another_release_registers_names_that_refuse_and_nothing_else(
    islands: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _name: "0.5.24")
    registered: dict[str, Any] = {}
    monkeypatch.setattr("sglang.srt.mem_cache.registry._RADIX_CACHE_REGISTRY", registered)
    hooked = dict(HookRegistry._hooks)
    plugin.load()
    assert HookRegistry._hooks == hooked
    assert sorted(registered) == ["islands", "lazy"]
    for factory in registered.values():
        with pytest.raises(ValueError, match=r"sglang 0\.5\.24 is installed: this plugin is for"):
            factory(None)


SMALL = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
UNFIT = [  # as SGLang sees them; sizes do not matter
    (
        "Llama4ForConditionalGeneration",
        Llama4Config(text_config={**SMALL, "attention_chunk_size": 8192}),
        "attends in local chunks of 8192 tokens",
    ),
    ("FalconH1ForCausalLM", FalconH1Config(**SMALL), "has Mamba or linear attention layers"),
    ("LlamaForCausalLM", LlamaConfig(**SMALL), "has no sliding-window layers"),
    ("Gemma3ForCausalLM", Gemma3TextConfig(**SMALL), "has no sliding-window layers with a KV pool of their own"),
    (
        "DeepseekV4ForCausalLM",
        DeepseekV4Config(**SMALL),
        "keeps its SWA KV outside of the radix cache",
    ),
]


@pytest.mark.parametrize(("architecture", "config", "says"), UNFIT, ids=[unfit[0] for unfit in UNFIT])
def test_models_that_islands_are_not_for(architecture: str, config: Any, says: str, tmp_path: Path) -> None:
    config.architectures = [architecture]
    config.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "compress_ratios": [0] * 4}))  # DeepSeek's has it
    flags = ("--page-size", "64", "--chunked-prefill-size", "512", "--device", "cpu")
    said = startup.unfit(prepare_server_args(["--model-path", str(tmp_path), *flags]))
    assert said is not None
    assert said.startswith(f"{architecture} ")
    assert says in said


def test_the_tiny_model_is_one_that_they_are_for(model: str, islands: tuple[str, ...]) -> None:
    assert startup.unfit(resolved(model, *islands)) is None


def test_no_swa_pool_no_islands(model: str, islands: tuple[str, ...]) -> None:
    said = startup.unfit(resolved(model, *islands, "--disable-hybrid-swa-memory"))
    assert said is not None
    assert "drop --disable-hybrid-swa-memory" in said


def test_every_rule_reads_a_flag_that_sglang_has() -> None:
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    flags = {flag for action in parser._actions for flag in action.option_strings}
    assert {rule.flag for rule in refusals.RULES} <= flags


@pytest.mark.parametrize("group", ["Memory", "Schedule", "Disagg"])
def test_every_flag_that_touches_cache_pools_or_scheduler_has_a_verdict(group: str) -> None:
    """docs/engine.md: what SGLang adds must be judged before the pin moves."""
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    flags = {action.dest: action.option_strings for action in parser._actions}
    guide = (Path(__file__).parents[3] / "docs" / "engine.md").read_text(encoding="utf-8")
    judged = re.findall(r"`(--[\w*-]+)", guide.split("## What is refused")[1])
    fields = importlib.import_module(f"sglang.srt.arg_groups.fields.{group.lower()}")
    for name in getattr(fields, group).__annotations__:
        given = flags.get(name, [])
        verdicts = [flag for flag in given for pattern in judged if fnmatch.fnmatch(flag, pattern)]
        assert verdicts or not given, f"{name} has no verdict"


def test_sglang_itself_refuses_beams_on_our_cache() -> None:
    """There is no flag for beams: a request asks for one, and is told."""
    coordinator: Any = SimpleNamespace(
        spec_algorithm=SpeculativeAlgorithm.NONE,
        dllm_enabled=False,
        model_config=SimpleNamespace(is_encoder_decoder=False),
        tree_cache=Rig(IslandRadixCache, Sizes(page=1)).cache,
    )
    request: Any = SimpleNamespace(sampling_params=SimpleNamespace(beam_width=4))
    said = BeamCoordinator.validate_and_init(coordinator, request, request)
    assert said == "Beam search is not supported with SWA/mamba hybrid caches."


def test_every_flag_of_sglang_passes_unless_it_is_owned_here() -> None:
    """Refusing abbreviations must not refuse a flag that SGLang knows by that very name."""
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    refused = set()
    for action in parser._actions:
        for flag in action.option_strings:
            try:
                launch.check_flag(flag, on=True)
            except guards.RefusedError:
                refused.add(flag)
    owned = {flag for flag in launch.OWNED if not flag.startswith(("--island", "--pace"))}
    assert refused == owned | {"--model", "--config", "--radix-cache-backend", "--disable-radix-cache"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--page-sise", "64"], "island-engine serve: --page-sise is not a flag: did you mean --page-size?"),
        (["--max-runing-requests=8"], "--max-runing-requests is not a flag: did you mean --max-running-requests?"),
        (["--tp-size", "two"], "--tp-size/--tensor-parallel-size: 'two' is not a whole number"),
        (["--xyz"], "island-engine serve: unrecognized arguments: --xyz"),
    ],
)
def test_a_slip_in_a_flag_of_sglang_is_one_sentence(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        launch.check_known(["--model-path", "m", *words])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert says in told
    assert len(told.splitlines()) == 1


def test_flags_of_sglang_may_be_abbreviated_as_sglang_allows() -> None:
    launch.check_known(["--model-path", "m", "--max-run", "8"])


def test_a_hub_that_nobody_reaches_is_told_by_its_own_client_at_once(tmp_path: Path) -> None:
    """One attempt, where SGLang makes many for each of many files."""
    command = [sys.executable, "-m", "island_engine", "serve", "--islands", "on", "--model-path", "some/model"]
    command += ["--swa-full-tokens-ratio", "0.17", "--max-total-tokens", "980000"]
    for variable, says in (
        ({"HF_ENDPOINT": "http://127.0.0.1:9"}, "http://127.0.0.1:9 cannot be reached"),
        ({"HF_HUB_OFFLINE": "1"}, "not in the hub's cache, and HF_HUB_OFFLINE is set"),
    ):
        environment = {**os.environ, "HF_HOME": str(tmp_path), **variable}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 2, done.stderr
        assert says in done.stderr
