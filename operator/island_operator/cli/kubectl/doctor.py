"""`kubectl island doctor`: what has to be there for an InferenceService to be served; each line OK, or what to do."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.text import Text

from island_operator.cli.kubectl import tree
from island_operator.cli.kubectl.diagnosis import LEASE, RIGHTS, Facts, Finding, Right, judge
from island_operator.cli.kubectl.status import PATIENCE, now
from island_operator.cli.kubectl.text import columns, show, show_json
from island_operator.cluster.client import parsed
from island_operator.cluster.kinds import GROUP, KINDS, PARENT
from island_operator.cluster.protocol import ApiError, Unreachable
from island_operator.core.gate import CONTAINER
from island_operator.core.observe import is_ready

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from island_operator.cli.kubectl.access import Access
    from island_operator.core.model import Object

ENGINES = 8  # pods whose first line is read


async def run(args: argparse.Namespace, access: Access) -> int:
    """Exit code 0: nothing is missing. 1: something is."""
    try:
        facts = await gather(access)
    except Unreachable as error:
        told = f"{access.cluster.host} does not answer: {error}; check network, VPN and the context"
        found = [Finding("cluster", ok=False, told=told)]
    else:
        found = judge(facts, now())
    if args.json:
        show_json([asdict(finding) for finding in found])
    else:
        show(table(found))
    return int(any(finding.ok is False for finding in found))


def table(found: Iterable[Finding]) -> list[Text]:
    """The lines for a person."""
    marks = {True: (tree.GOOD, "OK"), False: (tree.BAD, "FAIL"), None: (tree.IDLE, "SKIPPED")}
    rows: list[list[Text | str]] = [[Text(title, "bold") for title in ("CHECK", "STATUS", "DETAIL")]]
    rows += [[f.check, tree.marked(*marks[f.ok]), f.told] for f in found]
    return columns(rows)


# --- asking -----------------------------------------------------------------------------------------------------------


async def gather(access: Access) -> Facts:
    """Everything that is judged. Unreachable: there is no API server."""
    cluster = access.cluster
    crd = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{KINDS[PARENT].plural}.{GROUP}"
    labels = {"labelSelector": "app.kubernetes.io/name=radix-islands,app.kubernetes.io/component=operator"}
    lease = {"fieldSelector": f"metadata.name={LEASE}"}
    parents = await _or_error(_parents(access))
    return Facts(
        host=cluster.host,
        server=await _or_error(_get(access, "/version")),
        crd=await _or_error(_get(access, crd)),
        parents=parents,
        deployments=await _or_error(_items(access, KINDS["Deployment"].path(), labels)),
        leases=await _or_error(_items(access, KINDS["Lease"].path(), lease)),
        nodes=await _or_error(_items(access, "/api/v1/nodes", {})),
        engines=await _or_error(_engines(access)),
        rights=await _or_error(_rights(access)),
        namespace=access.namespace,
    )


async def _or_error(asked: Any) -> Any:
    try:
        return await asked
    except ApiError as error:
        return error


async def _get(access: Access, path: str, query: dict[str, str] | None = None) -> Object:
    return parsed(await access.cluster.request("get", path, path, query=query))


async def _items(access: Access, path: str, query: dict[str, str]) -> list[Object]:
    return list((await _get(access, path, query)).get("items") or ())


async def _parents(access: Access) -> list[Object]:
    return list((await access.cluster.list(PARENT, None if access.everywhere else access.namespace)).items)


async def _engines(access: Access) -> dict[str, str | None]:
    """The launcher's first line of each Ready engine pod tells what runs in it; an older pod's log may have lost it."""
    space = None if access.everywhere else access.namespace
    pods = (await access.cluster.list("Pod", space)).items
    ready = [p for p in pods if is_ready(p) and p["metadata"]["labels"].get(f"{GROUP}/role") == "engine"]
    found: dict[str, str | None] = {}
    query = {"container": CONTAINER, "limitBytes": "16384"}
    for pod in ready[:ENGINES]:
        meta = pod["metadata"]
        path = KINDS["Pod"].path(meta["namespace"], meta["name"], "log")
        try:
            async with asyncio.timeout(PATIENCE):
                said = await access.cluster.request("get", path, "Pod/log", query=query)
        except (ApiError, Unreachable, TimeoutError):  # the kubelet's fault, not the API server's
            found[meta["name"]] = None
        else:
            found[meta["name"]] = plugin_version(said.decode(errors="replace"))
    return found


def plugin_version(log: str) -> str | None:
    """The version in the launcher's own line; None where the log does not begin with one."""
    for line in log.splitlines():
        start = line.find("{")
        try:
            said = json.loads(line[start:]) if start >= 0 else None
        except ValueError:
            continue
        if isinstance(said, dict) and isinstance(said.get("plugin"), str):
            return str(said["plugin"])[:64]
    return None


async def _rights(access: Access) -> dict[Right, bool]:
    space = None if access.everywhere else access.namespace
    found = {}
    for right in sorted({right for rights in RIGHTS.values() for right in rights}):
        group, resource, verb = right
        resource, _, subresource = resource.partition("/")
        attributes = {"group": group, "resource": resource, "subresource": subresource, "verb": verb}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {**attributes, **({"namespace": space} if space else {})}},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = parsed(await access.cluster.request("create", path, "SelfSubjectAccessReview", body=body))
        found[right] = bool((answer.get("status") or {}).get("allowed"))
    return found
