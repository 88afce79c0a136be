"""The way to the cluster: which one, which namespace, and what is said when it cannot be had."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from island_operator.cli.kubectl.legible import legible, sentence
from island_operator.cluster.client import KubernetesCluster
from island_operator.cluster.kinds import PARENT
from island_operator.cluster.protocol import ApiError, Unreachable
from island_operator.core.model import Snapshot

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator

    from island_operator.core.model import Object

AGENT = "kubectl-island"
SHOWN = ("Deployment", "Job", "Pod")  # children that a person is shown
NAMED = 20  # names in one sentence


class Refusal(Exception):  # noqa: N818 - an answer, not a fault
    """One sentence for the person, with what to do; `code` is the exit code."""

    def __init__(self, sentence: str, code: int = 2) -> None:
        super().__init__(sentence)
        self.code = code


@dataclass(frozen=True)
class Access:
    """One API server as one person sees it."""

    cluster: KubernetesCluster
    namespace: str
    everywhere: bool = False  # --all-namespaces
    unread: dict[str, None] = field(default_factory=dict)  # sentences about what could not be read, each once

    async def parent(self, name: str) -> Object:
        """The InferenceService of that name; Refusal names those that there are."""
        if self.everywhere:
            found = [p for p in await self.parents() if p["metadata"]["name"] == name]
            if len(found) == 1:
                return found[0]
            spaces = ", ".join(p["metadata"]["namespace"] for p in found)
            if spaces:
                raise Refusal(f"InferenceService {name} exists in {spaces}: choose one with --namespace")
        elif parent := await self.cluster.get(PARENT, self.namespace, name):
            return self._read({**parent, "kind": PARENT})
        raise Refusal(await self._missing(name))

    async def parents(self) -> list[Object]:
        """All InferenceServices of the namespace, or of the cluster."""
        try:
            found = (await self.cluster.list(PARENT, None if self.everywhere else self.namespace)).items
        except ApiError as error:
            if error.status == 404:
                told = (
                    "this cluster does not know InferenceServices: install the operator's chart, which brings the CRD"
                )
                raise Refusal(f"{told}; kubectl island doctor says what else is missing") from error
            raise
        return [self._read(parent) for parent in found]

    def _read(self, parent: Object) -> Object:
        told, unread = legible(parent)
        if unread:
            self.unread[sentence(parent["metadata"]["name"], unread)] = None
        return told

    async def snapshot(self, name: str) -> Snapshot:
        """An InferenceService and what a person is shown of its children."""
        parent = await self.parent(name)
        space = parent["metadata"]["namespace"]
        children = [child for kind in SHOWN for child in (await self.cluster.list(kind, space, instance=name)).items]
        return Snapshot(parent, tuple(children))

    async def _missing(self, name: str) -> str:
        there = sorted(p["metadata"]["name"] for p in await self.parents())
        where = "in any namespace" if self.everywhere else f"in namespace {self.namespace}"
        told = f"no InferenceService {name} {where}"
        if there:
            more = f" and {len(there) - NAMED} more" if len(there) > NAMED else ""
            return f"{told}: there {'is' if len(there) == 1 else 'are'} {', '.join(there[:NAMED])}{more}"
        other = "" if self.everywhere else "; look elsewhere with --namespace or --all-namespaces"
        return f"{told}, and no other either{other}"


@contextlib.asynccontextmanager
async def connected(args: argparse.Namespace) -> AsyncIterator[Access]:
    """Access by --kubeconfig, --context and --namespace. Refusal: none of them leads to an API server that answers."""
    try:
        cluster = await KubernetesCluster.connect(args.kubeconfig, context=args.context, agent=AGENT)
    except ValueError as error:
        raise Refusal(_unusable(args, str(error))) from error
    everywhere = bool(getattr(args, "all_namespaces", False))
    access = Access(cluster, args.namespace or cluster.namespace or "default", everywhere)
    try:
        yield access
    except Unreachable as error:
        told = f"the API server at {cluster.host} does not answer: {error}"
        raise Refusal(f"{told}; check the cluster, or choose another with --context or --kubeconfig") from error
    except ApiError as error:
        if error.status == 401:
            raise Refusal(f"the API server at {cluster.host} does not know you: log in again, then repeat") from error
        raise Refusal(f"the API server refuses: {error}; kubectl island doctor says what you may do") from error
    finally:
        for unread in access.unread:
            sys.stderr.write(f"kubectl island: {unread}\n")
        await cluster.close()


def _unusable(args: argparse.Namespace, told: str) -> str:
    """What is wrong with a kubeconfig; of an unknown context, which ones there are."""
    if not args.context:
        return told
    from kubernetes.aio import config

    file = args.kubeconfig or os.environ.get("KUBECONFIG")
    with contextlib.suppress(config.ConfigException, OSError, ValueError, TypeError, AttributeError):
        contexts, _ = config.list_kube_config_contexts(file)
        names = sorted(str(context["name"]) for context in contexts)
        if args.context not in names:
            return f"--context {args.context} is not in the kubeconfig: use one of {', '.join(names)}"
    return told
