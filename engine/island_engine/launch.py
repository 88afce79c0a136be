"""`island-engine serve`: SGLang's own server with the switch and its coupled flags in one place."""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from island_engine import SGLANG_VERSION, flags, guards, hub, paced, refusals, startup
from island_engine.commandline import Parser
from island_engine.islands import mutation
from island_engine.islands.frontier import decode_interval
from island_engine.paced import profiles, server

if TYPE_CHECKING:
    from collections.abc import Sequence

OWNED = (
    "--model-path",
    "--swa-full-tokens-ratio",
    "--max-total-tokens",
    "--page-size",
    "--chunked-prefill-size",
    "--host",
    "--port",
    "--islands",
    "--pace",
    "--island-decode-interval",
)

EXAMPLE = """example:
  island-engine serve --islands on --model-path google/gemma-4-26B-A4B-it --swa-full-tokens-ratio 0.17 \\
    --max-total-tokens 980000 --page-size 64 --chunked-prefill-size 16384 --max-running-requests 48

Every other flag is SGLang's own and is passed through (see `python -m sglang.launch_server --help`)."""


def add_parser(subparsers: Any) -> None:
    """Add `serve` to the command line."""
    parser = subparsers.add_parser(
        "serve",
        help="serve a model with SGLang, islands on or off",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--islands", choices=("on", "off", "lazy"), required=True, help="the switch; lazy is for comparison only"
    )
    parser.add_argument(
        "--island-decode-interval",
        type=int,
        metavar="TOKENS",
        help="committed tokens between decode islands, at least a page (default: a quarter of the prefill chunk)",
    )
    parser.add_argument(
        "--pace",
        metavar="PROFILE",
        help="compute nothing: dummy tokens at the pace of an accelerator, on any machine and without a model; "
        f"{', '.join(profiles.PROFILES)}",
    )
    parser.add_argument("--model-path", help="folder or hub name of the model; with --pace the name to serve under")
    parser.add_argument(
        "--swa-full-tokens-ratio",
        required=True,
        type=float,
        help="SWA pool over full pool, above 0, at most 1: `island-engine plan` computes it",
    )
    parser.add_argument("--max-total-tokens", required=True, type=int, help="tokens in the full pool: from `plan` too")
    parser.add_argument("--page-size", type=int, default=64, help="tokens per KV page (default: 64)")
    parser.add_argument(
        "--chunked-prefill-size", type=int, default=16384, help="tokens per prefill chunk (default: 16384)"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=30000, help="port to listen on (default: 30000)")


def run(options: argparse.Namespace, rest: Sequence[str]) -> int:
    """Check, say what was resolved in one JSON line, then serve until SIGTERM."""
    guards.check_version()
    guards.check_mutation()
    check(options, rest)
    if not options.pace:
        guards.check_model(options.model_path)
        hub.check(options.model_path, flags.value(rest, "--revision"))
    guards.check_port(options.host, options.port)
    said = resolved(options)
    os.environ[refusals.INTERVAL] = str(said["decode_interval"] or "")
    os.environ[refusals.MODE] = options.islands
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    print(json.dumps(said), flush=True)
    if options.pace:
        print(f"island-engine: PACED as {options.pace}: every token is a dummy", file=sys.stderr, flush=True)
    return serve(options, arguments(options, rest))


def check(options: argparse.Namespace, rest: Sequence[str]) -> None:
    """Refuse values that cannot work, and flags that this launcher sets."""
    if options.pace:
        profiles.profile(options.pace)
    elif not options.model_path:
        raise guards.RefusedError("--model-path is missing: give the folder or the hub name of a model")
    if not 0 < options.swa_full_tokens_ratio <= 1:
        raise guards.RefusedError(
            f"--swa-full-tokens-ratio {options.swa_full_tokens_ratio}: use a value above 0 and at most 1"
        )
    for flag in ("max_total_tokens", "page_size", "chunked_prefill_size", "island_decode_interval"):
        value = getattr(options, flag)
        if value is not None and value < 1:
            raise guards.RefusedError(f"--{flag.replace('_', '-')} {value}: use a positive number of tokens")
    if options.chunked_prefill_size % options.page_size:
        multiple = -(-options.chunked_prefill_size // options.page_size) * options.page_size
        raise guards.RefusedError(
            f"--chunked-prefill-size {options.chunked_prefill_size} is not a multiple of "
            f"--page-size {options.page_size}: use {multiple}"
        )
    if options.islands != "on" and options.island_decode_interval:
        raise guards.RefusedError("--island-decode-interval needs --islands on: drop one of them")
    for argument in rest:
        check_flag(argument.split("=", 1)[0], on=options.islands != "off")
    check_contradictions(options)
    if options.islands == "on":
        guards.check_environment(options.page_size)


def check_contradictions(options: argparse.Namespace) -> None:
    """The flags decide: a variable of ours that says something else came from somewhere that nobody reviewed."""
    mode, interval = os.environ.get(refusals.MODE), os.environ.get(refusals.INTERVAL)
    if pace := os.environ.get(paced.PROFILE):
        raise guards.RefusedError(f"{paced.PROFILE}={pace} would serve dummies unseen: unset it and use --pace {pace}")
    if mode and mode != options.islands:
        raise guards.RefusedError(f"{refusals.MODE}={mode} contradicts --islands {options.islands}: unset it")
    if interval and interval != str(options.island_decode_interval):
        raise guards.RefusedError(
            f"{refusals.INTERVAL}={interval} contradicts the command line: unset it, or use --islands on "
            f"--island-decode-interval {interval}"
        )


def check_flag(name: str, *, on: bool) -> None:
    """Refuse what would choose the cache, or set one of our flags, behind the switch; SGLang takes abbreviations."""
    if not name.startswith("--") or name == "--":
        return
    if name.split() != [name]:
        raise guards.RefusedError(f"{name!r} is one word: give the flag and its value as two, each an item of a list")
    if name.startswith("--radix-cache") or "--radix-cache-backend".startswith(name) or name == "--config":
        raise guards.RefusedError(f"{name} would choose the cache behind the switch: use --islands on, off or lazy")
    for owned in OWNED:
        if owned.startswith(name):
            raise guards.RefusedError(f"{name} is short for {owned}: spell it out")
    if on and name.startswith("--disable-r") and "--disable-radix-cache".startswith(name):
        raise guards.RefusedError(f"{name}: islands live in the radix cache; drop it or use --islands off")


def arguments(options: argparse.Namespace, rest: Sequence[str]) -> list[str]:
    """SGLang's arguments: ours spelled out, the rest verbatim."""
    ours = [
        *(("--model-path", options.model_path) if options.model_path else ()),
        *("--swa-full-tokens-ratio", str(options.swa_full_tokens_ratio)),
        *("--max-total-tokens", str(options.max_total_tokens)),
        *("--page-size", str(options.page_size)),
        *("--chunked-prefill-size", str(options.chunked_prefill_size)),
        *("--host", options.host),
        *("--port", str(options.port)),
    ]
    backend = startup.BACKENDS.get(options.islands)
    return [*ours, *(("--radix-cache-backend", backend) if backend else ()), *rest]


def resolved(options: argparse.Namespace) -> dict[str, Any]:
    """What this engine will run with, in tokens. `window`: null when only SGLang can know it (a name of the hub)."""
    page, chunk = options.page_size, options.chunked_prefill_size
    if options.pace:
        window: int | None = profiles.PROFILES[options.pace].roofline.geometry.window
    else:
        window = sliding_window(options.model_path)
    interval = max(page, options.island_decode_interval or decode_interval(chunk, window or page, page))
    return {
        "islands": options.islands,
        "swa_full_tokens_ratio": options.swa_full_tokens_ratio,
        "max_total_tokens": options.max_total_tokens // page * page,
        "swa_tokens": int(options.swa_full_tokens_ratio * options.max_total_tokens) // page * page,
        "window": window,
        "page_size": page,
        "chunked_prefill_size": chunk,
        "decode_interval": interval if options.islands == "on" else None,
        "mutation": mutation.asked() or None,
        "paced": options.pace,
        "sglang": SGLANG_VERSION,
        "plugin": importlib.metadata.version("radix-islands"),
    }


def sliding_window(model_path: str) -> int | None:
    """The window that the model's config.json names, tokens."""
    path = Path(model_path).expanduser() / "config.json"
    if not path.is_file():
        return None
    config = json.loads(path.read_text(encoding="utf-8"))
    window = config.get("text_config", config).get("sliding_window")
    return int(window) if window else None


def serve(options: argparse.Namespace, argv: Sequence[str]) -> int:
    """Run SGLang's server in this process; it starts the scheduler and the detokenizer."""
    signal.signal(signal.SIGTERM, _terminated)  # a container's first process has no default; SGLang replaces it
    with tempfile.TemporaryDirectory(prefix="island-engine-") as folder:
        os.environ[startup.LAST_WORDS] = str(Path(folder) / "last-words")
        if options.pace:
            argv = [*argv, *server.prepare(options.pace, options.model_path, argv, Path(folder) / "model")]
        gc.disable()  # 6,000 modules are imported and all stay: collecting costs a fifth of that time (measured)
        from sglang.srt.plugins import load_plugins

        load_plugins()
        check_loaded()
        from sglang.launch_server import run_server
        from sglang.srt.server_args import prepare_server_args
        from sglang.srt.utils import kill_process_tree

        from island_engine import drain

        drain.install()
        check_known(argv)
        server_args = prepare_server_args(list(argv))
        server_args.custom_sigquit_handler = startup.scheduler_died
        gc.freeze()  # what is here stays; forked processes then share its pages
        gc.enable()
        try:
            run_server(server_args)
        except Exception as error:  # noqa: BLE001 - whatever it was, the last line of the log must say so
            traceback.print_exc()
            startup.die(startup.sentence(error))
        finally:
            kill_process_tree(os.getpid(), include_parent=False)
    return 0


def check_known(argv: Sequence[str]) -> None:
    """SGLang's own flags, read as it reads them; a slip is told in one sentence, not behind pages of its usage."""
    from sglang.srt.server_args import ServerArgs

    parser = Parser(prog="island-engine serve")
    ServerArgs.add_cli_args(parser)
    parser.parse_args(argv)


def _terminated(*_: Any) -> None:
    """SIGTERM while booting: nothing runs yet, so there is nothing to finish."""
    for child in multiprocessing.active_children():
        child.kill()
    os._exit(0)


def check_loaded() -> None:
    """SGLang only logs a plugin that failed: make sure that ours took in this process; each scheduler checks itself."""
    from sglang.srt.mem_cache.registry import registered_radix_cache_backends

    missing = set(startup.BACKENDS.values()) - set(registered_radix_cache_backends())
    if missing:
        chosen = os.environ.get("SGLANG_PLUGINS")
        remedy = (
            f"SGLANG_PLUGINS={chosen} leaves it out, unset it"
            if chosen
            else "reinstall radix-islands, see the log above"
        )
        raise guards.RefusedError(f"SGLang did not load the plugin of radix-islands: {remedy}")
    guards.check_hooks()


def fail(sentence: str) -> int:
    """One sentence on stderr, exit code 2."""
    print(f"island-engine: {sentence}", file=sys.stderr, flush=True)
    return 2
