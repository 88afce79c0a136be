"""The engine arguments that the gate passes on verbatim: what it refuses in them, reads from them, and adds. Pure."""

from __future__ import annotations

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
    for argument in engine_args:
        flag = argument.partition("=")[0]
        for refused, advice in REFUSED.items():
            # argparse takes an unambiguous beginning for the whole flag, so --isl is --islands
            if flag.startswith("--") and len(flag) > 3 and refused.startswith(flag):
                raise BadArgumentsError(f"{flag} is not allowed among the engine arguments: {advice}")
    if model_name(engine_args) is None and not paced(engine_args):
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


def model_name(engine_args: tuple[str, ...]) -> str | None:
    """The model, by either of SGLang's flags for it: a folder, or a name of the hub."""
    return value(engine_args, "--model-path") or value(engine_args, "--model")


def paced(engine_args: tuple[str, ...]) -> bool:
    """Whether these arguments start an engine that computes nothing (`island-engine serve --pace`)."""
    return value(engine_args, "--pace") is not None


def exact(engine_args: tuple[str, ...]) -> bool:
    """Whether the arguments promise bits that do not depend on the batch."""
    return any(name.partition("=")[0] == "--enable-deterministic-inference" for name in engine_args)


def batch_invariant(engine_args: tuple[str, ...]) -> bool:
    """Whether greedy answers do not depend on the batch: exact, or in fp32, whose noise (1e-6) flips no argmax."""
    return exact(engine_args) or value(engine_args, "--dtype") == "float32"


def speculates(engine_args: tuple[str, ...]) -> bool:
    """Whether the arguments ask for speculation."""
    return value(engine_args, "--speculative-algorithm") is not None


_DEGREES = (("--tp-size", "--tp", "--tensor-parallel-size"), ("--dp-size", "--dp", "--data-parallel-size"))
_PLACED = ("--base-gpu-id", "--gpu-id-step", "--nnodes")  # whoever says where an engine runs is not moved


def accelerators(engine_args: tuple[str, ...]) -> int:
    """How many one engine takes, at most; 0 when that is not ours to say."""
    if any(value(engine_args, flag) is not None for flag in _PLACED):
        return 0
    count = 1
    for names in _DEGREES:
        said = next((v for name in names if (v := value(engine_args, name)) is not None), "1")
        count *= int(said) if said.isdecimal() else 0
    return count


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
