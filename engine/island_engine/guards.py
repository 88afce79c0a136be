"""Refusals at work: they end a boot with one sentence, before anything is started where that is possible."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from island_engine import SGLANG_VERSION, refusals, sizing
from island_engine.islands import mutation
from island_engine.touchpoints import HOOKED

if TYPE_CHECKING:
    from collections.abc import Callable

    from island_engine.touchpoints import Touch


class RefusedError(SystemExit):
    """Ends the process with exit code 2; the text is one sentence that names the flag and the value to use."""

    def __init__(self, sentence: str) -> None:
        super().__init__(2)
        self.sentence = sentence


def check_version() -> None:
    """Every touch point was read in one release."""
    try:
        found = importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        raise RefusedError(
            f"sglang is not installed: install sglang=={SGLANG_VERSION}, or in a checkout make venv-engine"
        ) from None
    if found != SGLANG_VERSION:
        raise RefusedError(f"sglang {found} is installed: this plugin is for sglang=={SGLANG_VERSION} exactly")


def check_model(path: str) -> None:
    """A folder must hold a model; a name of the hub is left to SGLang."""
    looks_local = path.startswith(("/", "./", "../", "~"))
    if looks_local and not (Path(path).expanduser() / "config.json").is_file():
        raise RefusedError(f"--model-path {path}: no config.json there; give the folder of a Hugging Face model")


def check_port(host: str, port: int) -> None:
    """The port must be free now, not when the engine has booted."""
    if not 0 < port < 65_536:
        raise RefusedError(f"--port {port}: use 1 to 65535")
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise RefusedError(f"--port {port} on {host}: {error.strerror}; use a free --port") from None


def check_mutation() -> None:
    """A planted fault must be allowed by name."""
    try:
        mutation.asked()
    except ValueError as error:
        raise RefusedError(str(error)) from None


def check_environment(page: int) -> None:
    """Variables that would make islands something else than what was asked for. `page`: tokens."""
    if wrong := refusals.of_environment(os.environ, page):
        raise RefusedError(wrong)


def check_compiler(algorithm: str | None) -> None:
    """SGLang compiles NGRAM's corpus where it runs (kernels/ops/speculative/ngram_corpus.py); without a compiler the
    scheduler would end with a traceback. `algorithm`: of --speculative-algorithm.
    """
    if algorithm != "NGRAM":
        return
    if missing := [name for name in (os.environ.get("CXX", "c++"), "ninja") if shutil.which(name) is None]:
        raise RefusedError(
            f"--speculative-algorithm NGRAM compiles its corpus at the first start, and {' and '.join(missing)} "
            "cannot be found: use an image with g++ and ninja-build, such as the target engine, or EAGLE, STANDALONE"
        )


def interval() -> int | None:
    """The decode interval that this engine was given, tokens; None: a quarter of the chunk."""
    return int(os.environ[refusals.INTERVAL]) if os.environ.get(refusals.INTERVAL) else None


def hook(touch: Touch, function: Callable[..., Any], kind: str = "AFTER") -> None:
    """Hook a touch point, now; an error, because SGLang only logs a hook that it could not apply."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(touch.target, function, HookType[kind])
    HookRegistry.apply_hooks()
    check_hooks()


def check_hooks() -> None:
    """Every hook of ours took."""
    from sglang.srt.plugins.hook_registry import HookRegistry

    ours = {touch.target for touch in HOOKED}
    missing = sorted(ours & set(HookRegistry._hooks) - HookRegistry._patched)  # noqa: SLF001 - it has no public view
    if missing:
        raise RuntimeError(
            f"SGLang could not hook {', '.join(missing)} (see the log above): use sglang=={SGLANG_VERSION}"
        )


def check_context(context: Any) -> None:
    """In the scheduler, when the KV pools stand: what is known only now, or was asked of another release.
    ValueError, one sentence.
    """
    if context.enable_hierarchical_cache:
        raise ValueError(f"--enable-hierarchical-cache does not go with islands: drop it or use {refusals.instead()}")
    if context.disable_radix_cache:  # by the flag, or by SGLang for models that it runs through transformers
        raise ValueError(f"islands live in the radix cache, which is disabled for this model: use {refusals.instead()}")
    model = refusals.Model(
        name="this model",
        hybrid_swa=context.is_hybrid_swa,
        ssm=context.is_hybrid_ssm,
        full_layers=context.full_tokens_per_layer,
        swa_in_tree=context.params.swa_gates_prefix_match,
    )
    if wrong := refusals.of_model(model):
        raise ValueError(wrong)


def check_room(pool: int, window: int, page: int) -> None:
    """`pool`: SWA tokens. ValueError: a prompt that is alone in the engine might wait between its chunks for ever."""
    if pool < (least := sizing.lone(window, page)):
        raise ValueError(
            f"the SWA pool has {pool} tokens, and islands need {least} for a prompt of several chunks: use a larger "
            f"--swa-full-tokens-ratio or --max-total-tokens, or {refusals.instead()}"
        )


def check_type(cache: Any, expected: type) -> None:
    """The exact type, not a capability: the wrong cache under our freeing rules corrupts KV."""
    if type(cache) is not expected:
        raise TypeError(
            f"SGLang built {type(cache).__name__} where {expected.__name__} was asked for: use {refusals.instead()}"
        )
