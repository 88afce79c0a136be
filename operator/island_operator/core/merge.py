"""spec.podTemplate over what we build: a strategic merge by name, and what it may not touch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from island_operator.api.rules import COUPLED_ENV
from island_operator.core.text import escaped

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
    if isinstance(base, list) and isinstance(over, list) and (name := MERGE_KEYS.get(key)) and _named(over, name):
        return _by_name(base, over, name, whole=key in _UNION)
    return over


def _named(entries: list[Any], name: str) -> bool:
    return all(isinstance(e, dict) and isinstance(e.get(name), (str, int)) for e in entries)


def _by_name(base: list[Any], over: list[Any], name: str, *, whole: bool) -> list[Any]:
    patches = {entry.get(name): entry for entry in over}
    kept = [
        entry if (patch := patches.pop(entry[name], None)) is None else (patch if whole else merge(entry, patch))
        for entry in base
    ]
    return kept + [merge({}, entry) for entry in over if entry.get(name) in patches]


def check_template(template: Object) -> None:
    """TemplateError when the template would override what the revision decides, or has not the shape to be merged."""
    root = "spec.podTemplate"
    metadata, spec = (
        _object(template.get("metadata"), f"{root}.metadata"),
        _object(template.get("spec"), f"{root}.spec"),
    )
    for kind in ("labels", "annotations"):
        for name in _object(metadata.get(kind), f"{root}.metadata.{kind}"):
            if name.startswith(OURS) or name == "app.kubernetes.io/managed-by":
                raise TemplateError(f"{root}.metadata.{kind}.{name} is the operator's own: remove it")
    for name in ("restartPolicy", "nodeName", "automountServiceAccountToken"):
        if name in spec:
            raise TemplateError(f"{root}.spec.{name} is decided by the operator: remove it")
    for kind in ("containers", "initContainers", "volumes"):
        for entry in _entries(spec.get(kind), f"{root}.spec.{kind}", "name"):
            if kind == "containers" and entry["name"] == ENGINE:
                _check_engine(entry, f"{root}.spec.containers[{ENGINE}]")
            elif kind == "containers" and not entry.get("image"):
                name = escaped(entry["name"], 63)
                told = (
                    f"name one of them {ENGINE}, whose fields are merged; {name} is another container, without an image"
                )
                raise TemplateError(f"{root}.spec.containers: {told}")
            elif kind == "initContainers" and entry["name"] == ENGINE:
                raise TemplateError(f"{root}.spec.initContainers[{ENGINE}] takes the engine's name: use another")


def _check_engine(container: Object, where: str) -> None:
    for name, instead in (("args", "engine.args"), ("image", "engine.image"), ("command", "engine.image")):
        if name in container:
            raise TemplateError(f"{where}.{name} would hide what the revision says: use spec.{instead}")
    _entries(container.get("volumeMounts"), f"{where}.volumeMounts", "mountPath")
    for entry in _entries(container.get("env"), f"{where}.env", "name"):
        if entry["name"] in COUPLED_ENV:
            instead = "use spec.islands and spec.partition"
            raise TemplateError(f"{where}.env.{entry['name']} decides the coupled pair: {instead}")


def _object(value: Any, where: str) -> Object:
    if not isinstance(value, dict | None):
        raise TemplateError(f"{where} must be an object")
    return value or {}


def _entries(value: Any, where: str, key: str) -> list[Object]:
    """A list whose entries are merged by a key."""
    if not isinstance(value, list | None):
        raise TemplateError(f"{where} must be a list")
    for i, entry in enumerate(value or ()):
        if not isinstance(entry, dict) or not isinstance(entry.get(key), str):
            raise TemplateError(f"{where}[{i}].{key} is missing: entries are merged by it")
    return value or []
