"""A boot, whoever started it: what does not fit is refused before anything starts, what was built is checked after.

SGLang only logs a plugin or a hook that failed and goes on with its own cache or attention; nobody would notice until
the numbers are wrong. A scheduler that dies takes the server down with a signal, and the log's last line says nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from island_engine import guards, paced, refusals
from island_engine.refusals import MODE

LAST_WORDS = "ISLAND_LAST_WORDS"  # file that takes the sentence of a boot that failed
BACKENDS = {
    "on": "islands",
    "lazy": "lazy",
}  # mode of `island-engine serve` -> --radix-cache-backend; off: SGLang's own
CACHES = {
    "on": "island_engine.islands.cache.IslandRadixCache",
    "lazy": "island_engine.islands.lazy.LazyRadixCache",
}


def before_processes(_result: Any, server_args: Any, *_args: Any, **_kwargs: Any) -> None:
    """AFTER hook where SGLang is about to start its processes: refuse, or announce what will serve."""
    from sglang.srt.arg_groups.model_override_base import resolving_view
    from sglang.srt.arg_groups.overrides import resolution_result

    from island_engine import metrics

    args = resolving_view(server_args)
    ours = args.radix_cache_backend in BACKENDS.values()
    try:
        if ours or MODE in os.environ:  # else it is plain SGLang, and nobody's business
            guards.check_compiler(args.speculative_algorithm)
        if ours:
            guards.check_version()
            guards.check_mutation()
            guards.check_environment(args.page_size)
            if wrong := unfit(server_args):
                raise guards.RefusedError(wrong)
    except guards.RefusedError as refused:
        if MODE not in os.environ:  # else our command line says it
            print(f"island-engine: {refused.sentence}", file=sys.stderr, flush=True)
        raise
    if args.enable_metrics:
        ratio = resolution_result(server_args, "swa_full_tokens_ratio")
        metrics.announce(
            enabled=args.radix_cache_backend == BACKENDS["on"], ratio=ratio, paced=paced.PROFILE in os.environ
        )


def unfit(server_args: Any) -> str | None:
    """Why islands do not go with these arguments and their model, as a sentence."""
    from sglang.srt.arg_groups.model_override_base import model_config_of, resolving_view
    from sglang.srt.mem_cache.kv_cache_builder import uses_ssm_state

    if wrong := refusals.of_arguments(resolving_view(server_args)):
        return wrong
    config = model_config_of(server_args)
    layers, name = config.full_attention_layer_ids, config.hf_config.architectures[0]
    return refusals.of_model(
        refusals.Model(
            name=name,
            hybrid_swa=config.is_hybrid_swa,
            ssm=uses_ssm_state(config),
            attention_chunk=config.attention_chunk_size,
            full_layers=None if layers is None else len(layers),
            swa_in_tree=not name.startswith("DeepseekV4"),  # in pools and rings of its own (kv_cache_builder.py:346)
        )
    )


def around_scheduler(original: Any, scheduler: Any, server_args: Any, *args: Any, **kwargs: Any) -> None:
    """AROUND hook on the constructor. Checked again here: Ray and gRPC start schedulers in ways of their own."""
    backend = server_args.radix_cache_backend
    mode = os.environ.get(MODE) or next((mode for mode, ours in BACKENDS.items() if ours == backend), None)
    try:
        if backend in BACKENDS.values() and (wrong := unfit(server_args)):
            raise ValueError(wrong)
        original(scheduler, server_args, *args, **kwargs)
        if mode:
            check(scheduler, mode)
    except BaseException as error:
        leave(error)
        raise


def check(scheduler: Any, mode: str) -> None:
    """RuntimeError when the cache or, on a CPU, the attention is not exactly the one that was asked for."""
    cache, wanted = _name(scheduler.tree_cache), CACHES.get(mode)
    if wanted is None and not cache.startswith("sglang."):
        raise RuntimeError(
            f"--islands {mode} asks for SGLang's own cache, but {cache} was built: check --radix-cache-backend"
        )
    if wanted is not None and cache != wanted:
        raise RuntimeError(f"--islands {mode} asks for {wanted}, but {cache} was built: reinstall radix-islands")
    from island_engine.platform import activate

    guards.check_hooks()
    if activate() is not None:
        from island_engine.platform.attention import SdpaBackend

        backend = scheduler.tp_worker.model_runner.attn_backend
        if type(backend) is not SdpaBackend:
            raise RuntimeError(
                f"on a CPU only --attention-backend triton (ours) is right, but {_name(backend)} was built: drop it"
            )


def leave(error: BaseException) -> None:
    """Keep the reason for the process that ends last."""
    path = os.environ.get(LAST_WORDS)
    if path:
        Path(path).write_text(sentence(error), encoding="utf-8")


def sentence(error: BaseException) -> str:
    """The first line of an exception, as one line of a log."""
    text = str(error).strip().splitlines()
    return text[0] if text else type(error).__name__


def die(reason: str) -> None:
    """The last line of the log says why, because a pod's termination message is the end of its log; then all ends."""
    from sglang.srt.utils import kill_process_tree

    kill_process_tree(os.getpid(), include_parent=False)
    print(f"island-engine: the engine did not start: {reason}", file=sys.stderr, flush=True)
    os._exit(1)


def scheduler_died(*_: Any) -> None:
    """SIGQUIT during the boot: SGLang's children send it when they fail."""
    path = os.environ.get(LAST_WORDS, "")
    kept = Path(path).read_text(encoding="utf-8") if path and Path(path).is_file() else ""
    die(kept or "one of its processes failed, see the log above")


def _name(thing: Any) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"
