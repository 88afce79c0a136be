"""What must exist on the node or in the namespace before a pod's volumes can be mounted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from island_operator.core.text import escaped

if TYPE_CHECKING:
    from island_operator.core.model import Object

MODEL = "model"  # the volume of spec.model.source
_SOURCES = {"hostPath": "hostPath", "persistentVolumeClaim": "pvc"}  # below spec.model.source
_MUST_EXIST = {  # kinds of volumes, and what each calls the thing
    "hostPath": "path",
    "persistentVolumeClaim": "claimName",
    "secret": "secretName",
    "configMap": "name",
    "image": "reference",
}


def wanted(pod: Object) -> str:
    """By the field that asks for it. Volumes that the kubelet makes itself, or does without, are not waited for."""
    model, others = [], []
    for volume in pod["spec"].get("volumes", ()):
        for kind, key in _MUST_EXIST.items():
            if kind not in volume or volume[kind].get("optional") or _unchecked(kind, volume[kind]):
                continue
            name = volume[kind].get(key)
            if volume["name"] == MODEL and (field := _SOURCES.get(kind)):
                model.append(f"spec.model.source.{field} {name} must exist")
            else:
                others.append(f"{volume['name']} ({kind} {name})")
    told = [*model, *([f"of spec.podTemplate {', '.join(others)}"] if others else [])]
    return escaped(", or ".join(told) or "see kubectl describe pod")


def _unchecked(kind: str, source: Object) -> bool:
    return kind == "hostPath" and source.get("type") in {None, "", "DirectoryOrCreate", "FileOrCreate"}
