"""The scheduler checks what SGLang built; whoever ends last says why (island_engine/startup.py)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

from island_engine import launch, startup
from island_engine.bench.rig import Rig
from island_engine.islands.cache import IslandRadixCache
from island_engine.islands.lazy import LazyRadixCache
from island_engine.platform.attention import SdpaBackend

if TYPE_CHECKING:
    from pathlib import Path

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

    def dies(_scheduler: Any) -> None:
        raise ValueError("no such layer: drop --x\nand a trace")

    with pytest.raises(ValueError, match="no such layer"):
        startup.around_scheduler(dies, SimpleNamespace())
    assert (tmp_path / "words").read_text() == "no such layer: drop --x"


def test_every_flag_of_sglang_passes_unless_it_is_owned_here() -> None:
    """Refusing abbreviations must not refuse a flag that SGLang knows by that very name."""
    import argparse

    from sglang.srt.server_args import ServerArgs

    from island_engine import guards

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    refused = set()
    for action in parser._actions:
        for flag in action.option_strings:
            try:
                launch.check_flag(flag, on=True)
            except guards.RefusedError:
                refused.add(flag)
    owned = {flag for flag in launch.OWNED if not flag.startswith("--island")}
    assert refused == owned | {"--model", "--config", "--radix-cache-backend", "--disable-radix-cache"}
