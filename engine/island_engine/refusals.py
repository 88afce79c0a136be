"""What islands do not go with, as data: one sentence each, naming the flag and the value to use.

Checked over SGLang's resolved arguments before anything is started, whoever started it (`startup.before_processes`),
and again in each scheduler. Pure: it reads attributes and says what is wrong. docs/engine.md lists every flag of
SGLang's that touches the radix cache, the KV pools or the scheduler, with its verdict.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

EAGER = "SGLANG_OPT_UNIFIED_CACHE_FREE_OUT_OF_WINDOW_SLOTS"  # SGLang's own switch of freeing at a stash, on by default
INTERVAL = "ISLAND_DECODE_INTERVAL"  # tokens between decode islands; coupled, so the operator refuses it
MODE = "ISLAND_MODE"  # on, off or lazy: set by our launcher for the processes that it starts
UNPROVED_DRAFTS = ("DFLASH", "DSPARK", "UNO")


@dataclass(frozen=True)
class Rule:
    """A flag that does not go with islands: when (of the resolved arguments), why, and the value to use instead."""

    flag: str
    broken: Callable[[Any], object]
    why: str
    use: str = "drop it"


RULES = (
    Rule("--disable-radix-cache", lambda a: a.disable_radix_cache, "islands live in the radix cache"),
    Rule(
        "--enable-hierarchical-cache", lambda a: a.enable_hierarchical_cache, "HiCache backs up SWA KV that they free"
    ),
    Rule("--enable-lmcache", lambda a: a.enable_lmcache, "LMCache is a radix cache of its own"),
    Rule("--enable-flexkv", lambda a: a.enable_flexkv, "FlexKV is a radix cache of its own"),
    Rule(
        "--enable-unified-cache-external-linker",
        lambda a: a.enable_unified_cache_external_linker,
        "the external store expects SWA KV that they free",
    ),
    Rule("--enable-hisparse", lambda a: a.enable_hisparse, "it moves KV of a running request to the host"),
    Rule(
        "--disaggregation-mode",
        lambda a: a.disaggregation_mode != "null",
        "the transfer between prefill and decode engines reads SWA KV that they free",
        "use null",
    ),
    Rule(
        "--enable-pdmux",
        lambda a: a.enable_pdmux,
        "prefill and decode run on two streams, and freeing early is safe on one only",
    ),
    Rule(
        "--pp-size",
        lambda a: a.pp_size > 1,
        "several steps are in flight in a pipeline, and the proof of freeing early is for one",
        "use 1",
    ),
    Rule(
        "--enable-session-radix-cache",
        lambda a: a.enable_session_radix_cache,
        "a session keeps references to KV that they free",
    ),
    Rule("--enable-streaming-session", lambda a: a.enable_streaming_session, "a session keeps KV outside of the tree"),
    Rule(
        "--swa-prefix-tails",
        lambda a: a.swa_prefix_tails is not None,
        "it sizes the SWA pool by cached tails",
        "size it by --swa-full-tokens-ratio",
    ),
    Rule(
        "--chunked-prefill-size",
        lambda a: (a.chunked_prefill_size or 0) < 1,
        "a prefill island is cut at the end of a chunk",
        "use a positive number of tokens",
    ),
    Rule("--dllm-algorithm", lambda a: a.dllm_algorithm, "a diffusion model rewrites tokens that they have published"),
    Rule(
        "--decoupled-spec-role",
        lambda a: a.decoupled_spec_role != "null",
        "drafts come from another engine, which is not proved with them",
        "use null",
    ),
    Rule(
        "--speculative-algorithm",
        lambda a: a.speculative_algorithm in UNPROVED_DRAFTS,
        f"{', '.join(UNPROVED_DRAFTS[:-1])} and {UNPROVED_DRAFTS[-1]} are not proved with them",
        "use EAGLE, EAGLE3, NEXTN, STANDALONE or NGRAM",
    ),
    Rule(
        "--enable-encoder-swa-bounded-replay",
        lambda a: a.enable_encoder_swa_bounded_replay,
        "it rebuilds windows that the cache then does not keep",
    ),
    Rule(
        "--enable-decoder-swa-bounded-replay",
        lambda a: a.enable_decoder_swa_bounded_replay,
        "it rebuilds windows that the cache then does not keep",
    ),
)


@dataclass(frozen=True)
class Model:
    """What decides whether a model's KV is what islands are made for. `attention_chunk`: tokens, of chunked local
    attention; `full_layers`: how many layers attend to everything, None when nobody says.
    """

    name: str
    hybrid_swa: bool
    ssm: bool = False
    attention_chunk: int | None = None
    full_layers: int | None = None
    swa_in_tree: bool = True


def instead() -> str:
    """How whoever booted this engine turns islands off."""
    return "--islands off" if MODE in os.environ else "SGLang's own cache (no --radix-cache-backend)"


def of_arguments(args: Any) -> str | None:
    """The first flag that does not fit, as a sentence; `args`: attributes as in SGLang's ServerArgs, resolved."""
    for rule in RULES:
        if rule.broken(args):
            return f"{rule.flag} does not go with islands: {rule.why}; {rule.use} or use {instead()}"
    if args.chunked_prefill_size % args.page_size:
        multiple = -(-args.chunked_prefill_size // args.page_size) * args.page_size
        return (
            f"--chunked-prefill-size {args.chunked_prefill_size} is not a multiple of "
            f"--page-size {args.page_size}: use {multiple}"
        )
    return None


def of_model(model: Model) -> str | None:
    """Why islands are not for this model, as a sentence; SGLang's own cache serves it."""
    if model.ssm:
        return f"{model.name} has Mamba or linear attention layers, whose state islands do not know: use {instead()}"
    if model.attention_chunk:
        return (
            f"{model.name} attends in local chunks of {model.attention_chunk} tokens, not in a window that slides: "
            f"use {instead()}"
        )
    if not model.hybrid_swa:
        return (
            f"{model.name} has no sliding-window layers with a KV pool of their own: drop --disable-hybrid-swa-memory "
            f"where it was given, else use {instead()}"
        )
    if model.full_layers == 0:
        return f"{model.name} has no layer with full attention, so nothing to keep behind a window: use {instead()}"
    if not model.swa_in_tree:
        return f"{model.name} keeps its SWA KV outside of the radix cache: use {instead()}"
    return None


def of_environment(environ: Mapping[str, str], page: int) -> str | None:
    """A variable that makes islands something else than what was asked for, as a sentence. `page`: tokens."""
    if environ.get(EAGER, "").lower() in ("0", "false", "no", "n"):
        return f"{EAGER}={environ[EAGER]} turns prefill islands off: unset it"
    given = environ.get(INTERVAL)
    if given and not (given.isascii() and given.isdecimal()):
        return f"{INTERVAL}={given} is not a number of tokens: use {page} or more, or unset it for a quarter of a chunk"
    if given and int(given) < page:
        return f"{INTERVAL}={given} is less than --page-size {page}: use {page} or more"
    return None
