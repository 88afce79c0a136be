"""island-operator: run the operator, or print the CRD it serves."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys

from island_engine.commandline import Parser, piped

EXAMPLES = """examples:
  island-operator crd | kubectl apply --server-side -f -      install the CRD
  island-operator run --kubeconfig ~/.kube/config             run outside the cluster, all namespaces
  island-operator run --namespace models --log-format text    serve one namespace, logs for eyes
"""


def parser() -> argparse.ArgumentParser:
    """The flags. Imports nothing heavy: --help is instant."""
    top = Parser(
        prog="island-operator",
        description="The Radix Islands operator: one InferenceService, one model on one pool of pods.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="run|crd")
    run = commands.add_parser(
        "run",
        help="serve InferenceServices until SIGTERM",
        epilog="example:\n  island-operator run --namespace models --log-format text",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run.add_argument("--kubeconfig", help="kubeconfig file (default: $KUBECONFIG, in a pod its service account)")
    run.add_argument("--namespace", help="serve only this namespace (default: all; needs a ClusterRole)")
    run.add_argument("--lease-namespace", help="where the leader's Lease lives (default: the pod's own, else default)")
    run.add_argument(
        "--port", type=_port, default=8080, help="of /healthz, /readyz, /metrics (default 8080; 0: any free)"
    )
    run.add_argument("--workers", type=_positive, default=8, help="reconciles at a time (default 8)")
    run.add_argument("--resync", type=_positive, default=300, help="seconds between full sweeps (default 300)")
    run.add_argument("--log-format", choices=("json", "text"), default="json", help="default json")
    crd = commands.add_parser(
        "crd",
        help="print the CustomResourceDefinition",
        epilog="example:\n  island-operator crd | kubectl apply --server-side -f -",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    form = crd.add_mutually_exclusive_group()
    form.add_argument(
        "--chart", action="store_true", help="as the Helm template charts/radix-islands/templates/crd.yaml"
    )
    form.add_argument("--reference", action="store_true", help="as the page docs/reference.md")
    return top


def main(argv: list[str] | None = None) -> int:
    """Exit code: 0 stopped by a signal, 1 ended by a fault, 2 bad input."""
    return piped(lambda: _main(argv))


def _main(argv: list[str] | None) -> int:
    args = parser().parse_args(argv)
    if args.command == "crd":
        from island_operator.api import crd, reference

        text = crd.render()
        sys.stdout.write(
            as_template(text) if args.chart else reference.render(crd.definition()) if args.reference else text
        )
        return 0
    # As a container's first process it would be deaf to it, until its own handler is there, and be killed in the end.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    from island_operator.runtime import logs, memory
    from island_operator.runtime.main import Options, run

    logs.configure(args.log_format)
    memory.spare()
    options = Options(
        args.kubeconfig, args.namespace, args.lease_namespace, args.port, args.workers, float(args.resync)
    )
    try:
        code = asyncio.run(run(options))
    except ValueError as error:
        sys.stderr.write(f"island-operator: {error}\n")
        return 2
    logging.shutdown()
    os._exit(code)  # tearing the interpreter down took seconds with a thousand objects cached


def as_template(crd: str) -> str:
    """The CRD as the chart holds it: kept by `helm uninstall`, because with it would go every InferenceService."""
    head, name, rest = crd.partition("metadata:\n")
    keep = "  annotations:\n    helm.sh/resource-policy: keep\n"
    return f"{{{{- if .Values.crd.install }}}}\n{head}{name}{keep}{rest}{{{{- end }}}}\n"


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: use 0 to 65535")
    return int(text)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a count: use 1 or more")
    return int(text)


if __name__ == "__main__":
    raise SystemExit(main())
