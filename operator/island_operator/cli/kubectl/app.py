"""The command line of `kubectl island`. Imports nothing heavy: --help is instant."""

from __future__ import annotations

import argparse
import asyncio
import io
import sys
from typing import TYPE_CHECKING

from island_engine.commandline import Parser, piped

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from island_operator.cli.kubectl.access import Access

    Command = Callable[[argparse.Namespace, Access], Coroutine[None, None, int]]

EXAMPLES = """examples:
  kubectl island status                         all InferenceServices of the namespace
  kubectl island status gemma --watch           one of them, live: revisions, pods, gate, step, what it waits for
  kubectl island promote gemma                  skip the rest of the canary steps
  kubectl island gate gemma --report --output gate.html
  kubectl island doctor                         what is missing in this cluster
"""
VERBS = {
    "promote": "skip the rest of the canary steps, never the gate",
    "pause": "hold a rollout where it is; what fails is still rolled back",
    "resume": "go on with a paused rollout",
    "abort": "reject the revision that is rolled out, and roll back",
    "retry": "try a rejected revision again, or begin the rollout anew",
    "rollback": "leave what serves for the revision before it, or for its stock half",
}
INTERRUPTED = 130  # exit code after Ctrl-C, as shells have it


def parser(command: str | None = None) -> argparse.ArgumentParser:
    """All commands and their flags; those of `plan`, which are the planner's, only where that is the command."""
    top: argparse.ArgumentParser = Parser(
        prog="kubectl island",
        description="See and steer InferenceServices of radix-islands.dev.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="store_true", help="print the version of this plugin")
    _where(top, None)
    commands = top.add_subparsers(dest="command", metavar="COMMAND")

    status = _command(commands, "status", "what it does, what it waits for, and what to do", "status gemma --watch")
    status.add_argument("name", metavar="NAME", nargs="?", help="absent: all of them, in a table")
    status.add_argument("-w", "--watch", action="store_true", help="live, until Ctrl-C")

    _named(_command(commands, "history", "revisions and verbs, and what became of them", "history gemma"))

    if command == "plan":
        from island_operator.cli.kubectl import plan

        _where(plan.add_parser(commands))
    else:
        commands.add_parser(
            "plan", help="the pair for a model or an InferenceService, and what it runs", add_help=False
        )

    diff = _command(
        commands,
        "diff",
        "what makes two revisions differ, or one and what serves; exit code 1 where they do",
        "diff gemma stable canary",
    )
    _named(diff)
    which = "a revision, or how it begins, or: stable, canary, desired"
    diff.add_argument("old", metavar="OLD", nargs="?", help=f"{which}; absent: what serves, against canary or desired")
    diff.add_argument("new", metavar="NEW", nargs="?", help="another; absent: what serves, against OLD")

    gate = _command(commands, "gate", "what the newest gate found", "gate gemma --report --output gate.html")
    _named(gate)
    what = gate.add_mutually_exclusive_group()
    what.add_argument("--logs", action="store_true", help="its log instead")
    what.add_argument("--report", action="store_true", help="its report as a page of HTML instead")
    gate.add_argument("-f", "--follow", action="store_true", help="with --logs: until it ends")
    gate.add_argument("-o", "--output", metavar="FILE", help="with --logs or --report: into that file")

    for verb, does in VERBS.items():
        said = _command(commands, verb, does, f"{verb} gemma")
        _named(said)
        said.add_argument(
            "--timeout", type=_seconds, default=30, metavar="SECONDS", help="wait so long for the operator (default 30)"
        )
        said.set_defaults(verb=verb)

    _command(commands, "doctor", "what has to be there: each line OK, or what to do; exit code 1 if not", "doctor")
    return top


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, does: str, example: str
) -> argparse.ArgumentParser:
    made = commands.add_parser(
        name,
        help=does,
        description=f"{does[0].upper()}{does[1:]}.",
        epilog=f"example:\n  kubectl island {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _where(made)
    made.add_argument("--json", action="store_true", help="for programs")
    return made


def _where(command: argparse.ArgumentParser, default: str | None = argparse.SUPPRESS) -> None:
    """Before the command and after it; what is absent there leaves alone what was said here."""
    group = command.add_argument_group("cluster")
    group.add_argument(
        "--kubeconfig", metavar="FILE", default=default, help="default: $KUBECONFIG, else ~/.kube/config"
    )
    group.add_argument(
        "--context", metavar="NAME", default=default, help="of the kubeconfig (default: its current one)"
    )
    where = group.add_mutually_exclusive_group()
    where.add_argument(
        "-n", "--namespace", metavar="NAME", default=default, help="default: the context's, else default"
    )
    where.add_argument("-A", "--all-namespaces", action="store_true", default=default, help="look in all of them")


def _named(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", metavar="NAME", help="of the InferenceService")


def _seconds(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds: use 1 or more")
    return int(text)


def _conflict(args: argparse.Namespace) -> str | None:
    """Flags that do not go together; argparse knows no such rules."""
    if args.command != "gate":
        return None
    if args.follow and not args.logs:
        return "--follow follows a log: add --logs"
    if args.output and not (args.logs or args.report):
        return "--output takes a log or a report: add --logs or --report"
    if args.json and (args.logs or args.report):
        return "--json is for the verdict: leave out --logs and --report"
    return None


def main(argv: list[str] | None = None) -> int:
    """Exit code: 0 done, 1 not so (a verb refused, revisions differ, doctor found something), 2 bad input."""
    return piped(lambda: _main(sys.argv[1:] if argv is None else argv))


def _main(given: list[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 shows ? for an icon
    top = parser("plan" if "plan" in given else None)
    args = top.parse_args(given)
    if args.version:
        from importlib.metadata import version

        print(version("radix-islands"))
        return 0
    if args.command is None:
        top.print_help()
        return 0
    if wrong := _conflict(args):
        return _say(wrong)
    if args.command == "plan" and args.name is None:
        from island_engine.planner import cli as planner

        return planner.run(args, top.prog)
    try:
        return asyncio.run(_run(args))
    except KeyboardInterrupt:
        return INTERRUPTED


async def _run(args: argparse.Namespace) -> int:
    from island_operator.cli.kubectl.access import Refusal, connected

    try:
        async with connected(args) as access:
            return await _chosen(args)(args, access)
    except Refusal as refusal:
        return _say(str(refusal), refusal.code)


def _chosen(args: argparse.Namespace) -> Command:
    """The module of a command, and nothing that the others need."""
    if args.command == "status":
        from island_operator.cli.kubectl import status

        return status.run
    if args.command == "history":
        from island_operator.cli.kubectl import history

        return history.run
    if args.command == "diff":
        from island_operator.cli.kubectl import diff

        return diff.run
    if args.command == "gate":
        from island_operator.cli.kubectl import gate

        return gate.run
    if args.command == "plan":
        from island_operator.cli.kubectl import plan

        return plan.run
    if args.command == "doctor":
        from island_operator.cli.kubectl import doctor

        return doctor.run
    from island_operator.cli.kubectl import verbs

    return verbs.run


def _say(sentence: str, code: int = 2) -> int:
    sys.stderr.write(f"kubectl island: {sentence}\n")
    return code
