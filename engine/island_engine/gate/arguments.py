"""The engine arguments that the gate passes on verbatim: what it refuses in them, reads from them, and adds. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from island_engine.gate.outcome import error

# Flags that the gate sets itself or that would make its arms differ in more, or in less, than the switch.
REFUSED = {
    "--islands": "the gate boots both positions of the switch: leave it out",
    "--island-decode-interval": "pass it before the --, as the gate's own flag",
    "--host": "the gate serves on loopback: leave it out",
    "--port": "the gate picks a free port: leave it out",
    "--radix-cache-backend": "the switch decides it: leave it out",
    "--disable-radix-cache": "islands live in the prefix cache: leave it out",
    "--config": "a file may hide any of the others: give its flags one by one",
}
SECRET = ("--api-key", "--admin-api-key")


class BadArgumentsError(ValueError):
    """One sentence naming the flag and what to do."""


@dataclass(frozen=True)
class Model:
    """What the gate reads of a model directory."""

    path: Path
    window: int  # sliding window, tokens
    vocab: int  # token ids


def check(engine_args: tuple[str, ...]) -> None:
    """Refuse arguments that contradict the gate. BadArgumentsError names the flag."""
    for argument in engine_args:
        flag = argument.partition("=")[0]
        for refused, advice in REFUSED.items():
            # argparse takes an unambiguous beginning for the whole flag, so --isl is --islands
            if flag.startswith("--") and len(flag) > 3 and refused.startswith(flag):
                raise BadArgumentsError(f"{flag} is not allowed among the engine arguments: {advice}")
    if model_path(engine_args) is None:
        raise BadArgumentsError(
            "--model-path is missing after the --: give the engine arguments of the candidate, verbatim"
        )


def value(engine_args: tuple[str, ...], flag: str) -> str | None:
    """The last value of `flag`, given as `--flag x` or `--flag=x`; None without one."""
    found = None
    for i, argument in enumerate(engine_args):
        name, equals, inline = argument.partition("=")
        if name != flag:
            continue
        if equals:
            found = inline
        elif i + 1 < len(engine_args):
            found = engine_args[i + 1]
    return found


def model_path(engine_args: tuple[str, ...]) -> Path | None:
    """The model directory, by either of SGLang's names for it."""
    given = value(engine_args, "--model-path") or value(engine_args, "--model")
    return Path(given) if given else None


def with_metrics(engine_args: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments with --enable-metrics: the counters are the proof that islands happened. Equal in every arm."""
    return engine_args if "--enable-metrics" in engine_args else (*engine_args, "--enable-metrics")


def redacted(engine_args: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments without the values of secrets."""
    shown: list[str] = []
    hide = False
    for argument in engine_args:
        name, equals, _ = argument.partition("=")
        shown.append("***" if hide else f"{name}=***" if equals and name in SECRET else argument)
        hide = not hide and not equals and name in SECRET
    return tuple(shown)


def read_model(engine_args: tuple[str, ...]) -> Model:
    """The model's window and vocabulary from its config.json. Concludes ERROR NoModel or NotHybrid."""
    path = model_path(engine_args) or Path()
    config_file = path / "config.json"
    try:
        config = json.loads(config_file.read_text())
    except (OSError, ValueError) as fault:
        raise error("NoModel", f"--model-path {path} holds no readable config.json: {fault}") from fault
    text = config.get("text_config", config) if isinstance(config, dict) else {}
    window, vocab = text.get("sliding_window"), text.get("vocab_size")
    if type(window) is not int or window <= 0:
        raise error("NotHybrid", f"--model-path {path} has no sliding_window in its config.json: islands need one")
    if type(vocab) is not int or vocab <= 0:
        raise error("NoModel", f"--model-path {path} has no vocab_size in its config.json")
    return Model(path, window, vocab)
