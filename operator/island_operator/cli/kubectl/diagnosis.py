"""What `kubectl island doctor` makes of its facts: a Finding a line, in the order in which one would repair. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

from island_operator.api.crd import definition
from island_operator.cluster.kinds import GROUP, VERSION
from island_operator.cluster.protocol import ApiError
from island_operator.core.clock import elapsed
from island_operator.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Iterable

    from island_operator.core.model import Object

OLDEST = (1, 34)  # Kubernetes that the charts and tests are for
FRESH = 60.0  # seconds since a leader's last renewal; clocks differ
CHART = "helm upgrade --install radix-islands charts/radix-islands --namespace radix-islands-system --create-namespace"
INSTALL = f"{CHART} --set image.repository=REGISTRY/operator,image.tag=VERSION"
UPGRADE = f"{CHART} --reset-then-reuse-values"
LEASE = "radix-islands"
_POWERS = {suffix: 10 ** (3 * power) for power, suffix in enumerate("kMGTPE", 1)}
Right = tuple[str, str, str]  # API group, resource, verb
RIGHTS: dict[str, tuple[Right, ...]] = {  # what it is for, and what it takes
    "see rollouts": (
        (GROUP, "inferenceservices", "list"),
        ("apps", "deployments", "list"),
        ("batch", "jobs", "list"),
        ("", "pods", "list"),
    ),
    "say verbs": ((GROUP, "inferenceservices", "patch"),),
    "read gates": (("", "pods/log", "get"), ("", "configmaps", "get")),
}


@dataclass(frozen=True)
class Finding:
    """One line. `ok` None: it could not be looked at, which is no fault."""

    check: str
    ok: bool | None
    told: str


@dataclass(frozen=True)
class Facts:
    """What was asked for; an exception stands for an answer that was none."""

    host: str
    server: Object | Exception
    crd: Object | Exception
    parents: list[Object] | Exception
    deployments: list[Object] | Exception
    leases: list[Object] | Exception
    nodes: list[Object] | Exception
    engines: dict[str, str | None] | Exception  # pod -> version of the plugin in it; None: it does not say
    rights: dict[Right, bool] | Exception
    namespace: str


def judge(facts: Facts, moment: str) -> list[Finding]:
    """All lines, in the order in which one would repair them."""
    return [
        _cluster(facts),
        _crd(facts),
        *_operator(facts, moment),
        *_gpus(facts),
        *_versions(facts),
        *_permissions(facts),
    ]


def _cluster(facts: Facts) -> Finding:
    if isinstance(facts.server, Exception):
        return Finding("cluster", ok=False, told=f"{facts.host}: {facts.server}; log in again")
    told = f"Kubernetes {facts.server.get('gitVersion')} at {facts.host}"
    number = tuple(int("".join(c for c in str(facts.server.get(k)) if c.isdecimal()) or 0) for k in ("major", "minor"))
    if number < OLDEST:
        return Finding("cluster", ok=False, told=f"{told}: upgrade to {'.'.join(map(str, OLDEST))} or later")
    return Finding("cluster", ok=True, told=told)


def _crd(facts: Facts) -> Finding:
    if isinstance(facts.parents, ApiError) and facts.parents.status == 404:
        return Finding("CRD", ok=False, told=f"InferenceServices are not known here: {INSTALL}")
    if isinstance(facts.crd, Exception):
        return Finding("CRD", ok=True, told=f"{GROUP}/{VERSION} is served; its schema may not be read by you")
    wrong = behind(facts.crd)
    if wrong:
        return Finding("CRD", ok=False, told=f"{wrong}: bring CRD, operator and plugin to one release with {UPGRADE}")
    return Finding("CRD", ok=True, told=f"{GROUP}/{VERSION} is served, with the schema of this plugin's release")


def behind(crd: Object) -> str | None:
    """Where the schema in the cluster is another than the one that this release generates."""
    live = next((v for v in crd["spec"]["versions"] if v["name"] == VERSION), None)
    if live is None or not live.get("served"):
        return f"the CRD does not serve {VERSION}"
    mine = definition()["spec"]["versions"][0]
    here, there = (set(_fields((v.get("schema") or {}).get("openAPIV3Schema") or {})) for v in (mine, live))
    if missing := sorted(here - there):
        return f"the CRD is older than this plugin: it has no {missing[0]}"
    if extra := sorted(there - here):
        return f"the CRD is newer than this plugin: it has {extra[0]}"
    return None


def _fields(schema: Object, path: str = "") -> Iterable[str]:
    for name, inner in (schema.get("properties") or {}).items():
        where = f"{path}.{name}" if path else name
        yield where
        yield from _fields(inner, where)
    if "items" in schema:
        yield from _fields(schema["items"], f"{path}[]")


def _operator(facts: Facts, moment: str) -> Iterable[Finding]:
    leader = _leader(facts, moment)
    found = facts.deployments
    if isinstance(found, Exception):
        yield Finding("operator", ok=None, told="Deployments of other namespaces may not be listed by you")
    elif not found:
        if leader.ok:
            yield Finding("operator", ok=True, told="runs, but not from a Deployment of the chart")
        else:
            yield Finding("operator", ok=False, told=f"there is none: {INSTALL}")
    for deployment in found if isinstance(found, list) else ():
        meta, ready = deployment["metadata"], (deployment.get("status") or {}).get("readyReplicas") or 0
        where = f"Deployment {meta['namespace']}/{meta['name']}"
        told = f"{where}, version {_version_of(deployment)}, {ready} of {deployment['spec'].get('replicas', 1)} Ready"
        look = f"kubectl -n {meta['namespace']} describe pods -l app.kubernetes.io/component=operator"
        yield Finding("operator", ok=ready > 0, told=told if ready else f"{told}: {look}")
    yield leader


def _version_of(deployment: Object) -> str:
    return str((deployment["metadata"].get("labels") or {}).get("app.kubernetes.io/version", "unknown"))


def _leader(facts: Facts, moment: str) -> Finding:
    if isinstance(facts.leases, Exception):
        return Finding("leader", ok=None, told="Leases of other namespaces may not be listed by you")
    held = [lease for lease in facts.leases if (lease.get("spec") or {}).get("holderIdentity")]
    if not held:
        return Finding("leader", ok=False, told=f"nobody holds a Lease {LEASE}: see that an operator pod is Ready")
    newest = max(held, key=lambda lease: str(lease["spec"].get("renewTime") or ""))
    meta, spec = newest["metadata"], newest["spec"]
    told = f"{spec['holderIdentity']} by Lease {meta['namespace']}/{meta['name']}"
    if not spec.get("renewTime"):
        return Finding("leader", ok=False, told=f"{told}, never renewed: see that an operator pod is Ready")
    since = elapsed(spec["renewTime"], moment)
    told = f"{told}, renewed {max(0, since):.0f} s ago"
    if since > FRESH:
        return Finding("leader", ok=False, told=f"{told}: it is gone; see that an operator pod is Ready")
    return Finding("leader", ok=True, told=told)


def _gpus(facts: Facts) -> Iterable[Finding]:
    """Of each extended resource that some InferenceService asks for; of nvidia.com/gpu where there is none yet."""
    parents = facts.parents if isinstance(facts.parents, list) else []
    wanted = {resource for parent in parents if (resource := _accelerator(parent))}
    if isinstance(facts.nodes, Exception):
        yield Finding("accelerator", ok=None, told="nodes may not be listed by you")
        return
    if parents and not wanted:
        yield Finding("accelerator", ok=True, told="no InferenceService asks for one")
    for resource in sorted(wanted) if parents else ["nvidia.com/gpu"]:
        offers = [(n.get("status") or {}).get("allocatable") or {} for n in facts.nodes]
        amounts = [_count(offer.get(resource, "0")) for offer in offers]
        nodes = sum(amount > 0 for amount in amounts)
        if nodes:
            told = f"{sum(amounts)} {resource} on {nodes} of {len(amounts)} nodes"
            yield Finding("accelerator", ok=True, told=told)
        else:
            yield Finding("accelerator", ok=False, told=f"no node offers {resource}: install its device plugin")


def _count(quantity: str) -> int:
    """A whole number as the API server writes it: 80000 (of shared GPUs, say) comes back as 80k."""
    number, power = (quantity[:-1], _POWERS[quantity[-1]]) if quantity[-1:] in _POWERS else (quantity, 1)
    return int(number) * power


def _accelerator(parent: Object) -> str | None:
    """What an InferenceService asks for, as far as this release can read it."""
    spec = parent.get("spec")
    asked = spec.get("accelerator") if isinstance(spec, dict) else None
    if not isinstance(asked, dict) or not asked.get("count", 1) or not isinstance(asked.get("resource"), str):
        return None
    return escaped(asked["resource"])


def _versions(facts: Facts) -> Iterable[Finding]:
    """The operator, the engines and this plugin are one release."""
    mine = version("radix-islands")
    operators = sorted({_version_of(d) for d in facts.deployments}) if isinstance(facts.deployments, list) else []
    for other in operators:
        same = other == mine
        told = f"this plugin is {mine}, the operator {other}"
        yield Finding("versions", ok=same, told=told if same else f"{told}: install radix-islands[kubectl]=={other}")
    if isinstance(facts.engines, Exception):
        yield Finding("engines", ok=None, told=f"their pods may not be read by you: {facts.engines}")
        return
    told_by = {pod: said for pod, said in facts.engines.items() if said}
    if not told_by:
        why = (
            "no engine is Ready"
            if not facts.engines
            else "the engines' logs do not say: they may not be read, or go too far back"
        )
        yield Finding("engines", ok=None, told=why)
        return
    want = operators[0] if operators else mine
    wrong = {pod: said for pod, said in told_by.items() if said != want}
    if wrong:
        pod, said = next(iter(wrong.items()))
        told = f"pod {pod} has plugin {said}, not {want}: set spec.engine.image to the image of that release"
        yield Finding("engines", ok=False, told=told)
    else:
        yield Finding("engines", ok=True, told=f"{len(told_by)} read, all with plugin {want}")


def _permissions(facts: Facts) -> Iterable[Finding]:
    if isinstance(facts.rights, Exception):
        yield Finding("permissions", ok=None, told=str(facts.rights))
        return
    for purpose, rights in RIGHTS.items():
        missing = [f"{verb} {resource}" for group, resource, verb in rights if not facts.rights[group, resource, verb]]
        told = f"to {purpose} in namespace {facts.namespace}"
        if missing:
            told = f"{told}: ask for {', '.join(missing)}"
        yield Finding("permissions", ok=not missing, told=told)
