"""spec.podTemplate over what we build: a strategic merge by name, and what it may not touch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from island_operator.api.rules import COUPLED_ENV

if TYPE_CHECKING:
    from island_operator.core.model import Object

# The API server's merge keys of a pod template; every other list is replaced as a whole.
MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "resourceClaims": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "topologySpreadConstraints": "topologyKey",
    "hostAliases": "ip",
}
ENGINE = "engine"
OURS = "radix-islands.dev/"
_UNION = {"volumes"}  # an entry is one of many sources: merged, it would have two


class TemplateError(ValueError):
    """spec.podTemplate touches what the revision decides. `str()` is one sentence with the field and what to do."""


def merge(base: Any, over: Any, key: str = "") -> Any:
    """`over` on top of `base`: objects merge, lists with a merge key merge by it, null removes, all else replaces."""
    if isinstance(base, dict) and isinstance(over, dict):
        merged = {k: v for k, v in base.items() if k not in over}
        merged |= {k: merge(base.get(k), v, k) for k, v in over.items() if v is not None}
        return {k: merged[k] for k in (*base, *over) if k in merged}  # ours first, so that the order is stable
    if isinstance(base, list) and isinstance(over, list) and key in MERGE_KEYS:
        return _by_name(base, over, MERGE_KEYS[key], whole=key in _UNION)
    return over


def _by_name(base: list[Any], over: list[Any], name: str, *, whole: bool) -> list[Any]:
    patches = {entry.get(name): entry for entry in over}
    kept = [
        entry if (patch := patches.pop(entry[name], None)) is None else (patch if whole else merge(entry, patch))
        for entry in base
    ]
    return kept + [merge({}, entry) for entry in over if entry.get(name) in patches]


def check_template(template: Object) -> None:
    """TemplateError when the template would override what the revision decides, or does not have a pod's shape."""
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    if not isinstance(metadata, dict) or not isinstance(spec, dict):
        raise TemplateError("spec.podTemplate: metadata and spec must be objects")
    for kind in ("labels", "annotations"):
        for name in metadata.get(kind) or {}:
            if name.startswith(OURS) or name == "app.kubernetes.io/managed-by":
                raise TemplateError(f"spec.podTemplate.metadata.{kind}.{name} is the operator's own: remove it")
    for name in ("restartPolicy", "nodeName", "automountServiceAccountToken"):
        if name in spec:
            raise TemplateError(f"spec.podTemplate.spec.{name} is decided by the operator: remove it")
    for kind in ("containers", "initContainers", "volumes"):
        for i, entry in enumerate(spec.get(kind) or ()):
            if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
                raise TemplateError(f"spec.podTemplate.spec.{kind}[{i}].name is missing: entries are merged by name")
    for container in spec.get("containers") or ():
        if container["name"] == ENGINE:
            _check_engine(container)


def _check_engine(container: Object) -> None:
    where = "spec.podTemplate.spec.containers[engine]"
    for name, instead in (
        ("args", "spec.engine.args"),
        ("image", "spec.engine.image"),
        ("command", "spec.engine.image"),
    ):
        if name in container:
            raise TemplateError(f"{where}.{name} would hide what the revision says: use {instead}")
    for kind, key in (("env", "name"), ("volumeMounts", "mountPath")):
        for i, entry in enumerate(container.get(kind) or ()):
            if not isinstance(entry, dict) or not isinstance(entry.get(key), str):
                raise TemplateError(f"{where}.{kind}[{i}].{key} is missing: entries are merged by it")
    for entry in container.get("env") or ():
        if entry["name"] in COUPLED_ENV:
            raise TemplateError(
                f"{where}.env.{entry['name']} decides the coupled pair: use spec.islands and spec.partition"
            )
