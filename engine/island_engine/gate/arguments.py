"""The engine arguments that the gate passes on verbatim: what it refuses in them, reads from them, and adds. Pure."""

from __future__ import annotations

from island_engine import flags

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


def check(engine_args: tuple[str, ...]) -> None:
    """Refuse arguments that contradict the gate. BadArgumentsError names the flag."""
    for flag, _ in flags.said(engine_args):
        for refused in flags.meant(flag, REFUSED):
            raise BadArgumentsError(f"{flag} is not allowed among the engine arguments: {REFUSED[refused]}")
    if model_name(engine_args) is None and not paced(engine_args):
        raise BadArgumentsError(
            "--model-path is missing after the --: give the engine arguments of the candidate, verbatim"
        )


def model_name(engine_args: tuple[str, ...]) -> str | None:
    """The model, by either of SGLang's flags for it: a folder, or a name of the hub."""
    return flags.value(engine_args, "--model-path", "--model")


def paced(engine_args: tuple[str, ...]) -> bool:
    """Whether these arguments start an engine that computes nothing (`island-engine serve --pace`)."""
    return flags.has(engine_args, "--pace")


def exact(engine_args: tuple[str, ...]) -> bool:
    """Whether the arguments promise bits that do not depend on the batch."""
    return flags.has(engine_args, "--enable-deterministic-inference")


def batch_invariant(engine_args: tuple[str, ...]) -> bool:
    """Whether greedy answers do not depend on the batch: exact, or in fp32, whose noise (1e-6) flips no argmax."""
    return exact(engine_args) or flags.value(engine_args, "--dtype") == "float32"


def speculates(engine_args: tuple[str, ...]) -> bool:
    """Whether the arguments ask for speculation."""
    return flags.has(engine_args, "--speculative-algorithm")


def with_metrics(engine_args: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments with --enable-metrics: the counters are the proof that islands happened. Equal in every arm."""
    return engine_args if "--enable-metrics" in engine_args else (*engine_args, "--enable-metrics")


def redacted(engine_args: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments without the values of secrets."""
    shown: list[str] = []
    hide = False
    for argument in engine_args:
        flag = flags.word(argument)
        secret = not hide and bool(flags.meant(flag, SECRET))
        shown.append("***" if hide else f"{argument[: len(flag) + 1]}***" if secret and flag != argument else argument)
        hide = secret and flag == argument
    return tuple(shown)
