"""The command line of e2e/cluster."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from . import apt, binaries, engine_image, guard, host, images, node, owner, render, store
from .bring_up import KUBECONFIG, Wanted, claim, refusal, up
from .cleanup import purge, tear_down
from .errors import ClusterError
from .owner import Claim
from .progress import say
from .state import describe, status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

EXIT_DOWN = 3
EPILOG = """\
examples:
  cluster up                        start it, or bring a running one up to date; idempotent
  cluster up --gpus 4               four nvidia.com/gpu on the node
  cluster up --tied-to $$           ... and take it down when this shell ends
  cluster status --json             exit 0: up, 3: not up
  cluster kubectl get pods -A       kubectl of the cluster's version, without a KUBECONFIG
  cluster down --purge              also drop the image store and built images

It needs root. What is costly is kept under RADIX_ISLANDS_CACHE (~/.cache/radix-islands). One cluster per machine.
"""


def parser() -> argparse.ArgumentParser:
    """All subcommands and their flags."""
    top = argparse.ArgumentParser(
        prog="cluster",
        description="A real single-node Kubernetes on this machine, without Docker.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        return command

    start = add("up", _up, "Start the cluster, or bring a running one up to date; prints the KUBECONFIG line last.")
    start.add_argument("--gpus", type=_count, default=2, metavar="N", help="nvidia.com/gpu on the node (default 2)")
    start.add_argument("--port", metavar="PORT", help=f"of the API on 127.0.0.1 (API_PORT, {render.DEFAULT_PORT})")
    start.add_argument("--tied-to", type=_count, metavar="PID", help="take it all down when this process dies")
    start.add_argument("--bare", action="store_true", help="no engine environment, no model, no images of this project")
    add("untie", _untie, "Let the cluster live on when the process of --tied-to dies.")
    stop = add("down", _down, "Stop the cluster and leave nothing on the machine but the cache.")
    stop.add_argument("--purge", action="store_true", help="also drop the image store and built images")
    look = add("status", _status, f"What runs, and whether it is well; exit 0: up, {EXIT_DOWN}: not up.")
    look.add_argument("--json", action="store_true", help="one JSON object")
    add("binaries", _binaries, "Build Kubernetes, CoreDNS and Helm where missing; prints their directory.")
    build = add("images", _images, "Build this project's images where missing; imports them where the cluster is up.")
    build.add_argument(
        "--check", action="store_true", help="also build twice from nothing and compare; the engine's stages"
    )
    build.add_argument(
        "--engine", choices=engine_image.LOCKS, help="also SGLang whole, for GPUs or for CPUs; gigabytes, not imported"
    )
    build.add_argument("--sizes", action="store_true", help="also compress each, to say how large a pull would be")
    for name, run, text in (
        ("kubectl", _kubectl, "Run kubectl on the cluster."),
        ("exec", _exec, "Run a command inside the node, such as `cluster exec -- ip route`."),
    ):
        add(name, run, text)
    watch = commands.add_parser("guard")  # started by `up --tied-to`, not by people: no help text, so not listed
    watch.add_argument("pidfd", type=int)
    watch.add_argument("mark")
    watch.set_defaults(run=_guard)
    return top


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text)


def _up(args: argparse.Namespace) -> int:
    port = host.parse_port(args.port or os.environ.get("API_PORT") or str(render.DEFAULT_PORT))
    kubeconfig = up(Wanted(gpus=args.gpus, port=port, bare=args.bare, tied_to=args.tied_to))
    print(f"export KUBECONFIG={kubeconfig}")
    return 0


def _untie(_: argparse.Namespace) -> int:
    told = "no longer ends with the process that started it" if guard.stop() else "was not tied to any process"
    say(f"the cluster {told}")
    return 0


def _down(args: argparse.Namespace) -> int:
    host.check_root()
    down(purge_too=args.purge)
    return 0


def down(*, purge_too: bool = False) -> None:
    """Take the cluster down if it is this checkout's, or what is left of anyone's."""
    with owner.machine_lock():
        standing, record = claim()
        if standing is Claim.THEIRS and record:
            raise refusal(record)
        tear_down(record)
        if purge_too:
            purge()
    say("nothing was up" if standing is Claim.FREE else "cluster down")


def _status(args: argparse.Namespace) -> int:
    found = status()
    print(json.dumps(found.as_dict, indent=1) if args.json else describe(found))
    return 0 if found.up else EXIT_DOWN


def _binaries(_: argparse.Namespace) -> int:
    print(binaries.ensure())
    return 0


def _images(args: argparse.Namespace) -> int:
    host.check_root()
    apt.ensure(apt.IMAGES)
    wanted = images.ours()
    images.ensure(wanted)
    if claim()[0] is Claim.OURS:
        store.bring(wanted)
    if args.check:
        print(f"reproducible  operator {images.check()}")
    if args.engine:
        print(f"{(whole := engine_image.ensure(args.engine)).ref}  {whole.archive}")
    for image in wanted:
        size = ""
        if args.sizes:
            size = f"  {len(gzip.compress(image.archive.read_bytes(), 6)) / 1e6:.0f} MB compressed"
        print(f"{image.ref}  {image.archive}{size}")
    return 0


def _kubectl(args: argparse.Namespace) -> int:
    if claim()[0] is not Claim.OURS:
        raise ClusterError("no cluster of this checkout is up; start it with `cluster up`")
    command = [str(binaries.ensure() / "kubeall"), "kubectl", *args.arguments]
    return subprocess.run(command, env={**os.environ, "KUBECONFIG": str(KUBECONFIG)}, check=False).returncode


def _exec(args: argparse.Namespace) -> int:
    command = args.arguments[1:] if args.arguments[:1] == ["--"] else args.arguments
    return node.in_node(command or ["/bin/bash"])


def _guard(args: argparse.Namespace) -> int:
    guard.watch(args.pidfd)
    down()
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; 2 for a ClusterError, told in one sentence."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that `up` cleans up behind itself
    given = list(sys.argv[1:] if argv is None else argv)
    passed_on = (
        given[1:] if given[:1] in (["kubectl"], ["exec"]) else []
    )  # verbatim: argparse would take -n for its own
    args = parser().parse_args(given[: len(given) - len(passed_on)])
    args.arguments = passed_on
    try:
        code: int = args.run(args)
    except ClusterError as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("cluster: interrupted", file=sys.stderr)
        return 130
    return code
