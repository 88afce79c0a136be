"""The kinds the operator touches: where they live in the API, and which verbs it needs on each."""

from __future__ import annotations

from dataclasses import dataclass

GROUP = "radix-islands.dev"
VERSION = "v1alpha1"
PARENT = "InferenceService"
INSTANCE = f"{GROUP}/instance"  # the label that ties a child to the InferenceService of that name
FIELD_MANAGER = "radix-islands"


@dataclass(frozen=True)
class Kind:
    """One resource of the API: `/apis/<group>/<version>/.../<plural>`, the core group being ""."""

    group: str
    version: str
    plural: str

    @property
    def api_version(self) -> str:
        """What `apiVersion` says, e.g. apps/v1 or v1."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str = "", subresource: str = "") -> str:
        """The URL path; without a namespace, of the whole cluster."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root, *(["namespaces", namespace] if namespace else []), self.plural, name, subresource]
        return "/".join(part for part in parts if part)


KINDS = {
    PARENT: Kind(GROUP, VERSION, "inferenceservices"),
    "Deployment": Kind("apps", "v1", "deployments"),
    "Service": Kind("", "v1", "services"),
    "Job": Kind("batch", "v1", "jobs"),
    "Pod": Kind("", "v1", "pods"),
    "ConfigMap": Kind("", "v1", "configmaps"),
    "PodDisruptionBudget": Kind("policy", "v1", "poddisruptionbudgets"),
    "HTTPRoute": Kind("gateway.networking.k8s.io", "v1", "httproutes"),
    "Lease": Kind("coordination.k8s.io", "v1", "leases"),
    "Event": Kind("events.k8s.io", "v1", "events"),
}
OPTIONAL = ("HTTPRoute",)  # a cluster need not have them, so they are listed now and then instead of watched
CHILDREN = ("Deployment", "Service", "Job", "Pod", "PodDisruptionBudget", *OPTIONAL)
MADE_ONCE = ("Job",)  # never changed after they are made: one of that name that is not ours is left alone
WATCHED = (PARENT, *(kind for kind in CHILDREN if kind not in OPTIONAL))
