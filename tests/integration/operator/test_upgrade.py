"""The kill switch under a CRD that became stricter: whatever an older one let in can still be switched to stock."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
from support.control_plane import until
from support.resources import DERIVED, resource

from island_operator.api import crd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.control_plane import ControlPlane

    Object = dict[str, Any]

OFF, ON = ({"spec": {"islands": {"enabled": on}}} for on in (False, True))
OLD: dict[str, Object] = {
    "explicit": {},
    "derived": DERIVED,
    "with-arguments": {
        "engine/args": ["--tp", "2"],
        "engine/env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
        "islands/decodeInterval": 8192,
        "rollout": {"steps": [{"weight": 10, "pause": "1h"}]},
    },
}


def schema(definition: Object) -> Object:
    found: Object = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def nodes(node: Object) -> Iterator[Object]:
    """Every schema node below `spec`, but not `islands.enabled`: what the switch itself says must stay legal."""
    yield node
    for name, inner in node.get("properties", {}).items():
        if name != "enabled":
            yield from nodes(inner)
    if "items" in node:
        yield from nodes(node["items"])


def stricter() -> Object:
    """The CRD with every rule and every bound so strict that no object of OLD could be made any more."""
    definition = crd.definition()
    root = schema(definition)
    spec = root["properties"]["spec"]
    for node in (root, *nodes(spec)):
        for rule in node.get("x-kubernetes-validations", ()):
            if "optionalOldSelf" in rule:  # the check is the last of its alternatives
                passes, check = rule["rule"].rsplit(" || ", 1)
                rule["rule"] = f"{passes} || (false && {check})"
            elif "oldSelf" not in rule["rule"]:
                rule["rule"] = f"false && ({rule['rule']})"
                node.pop("default", None)  # a default must keep the rules
            rule.pop("messageExpression", None)
        if node.get("type") == "integer" and "default" not in node:
            node["minimum"] = node["maximum"]
    root["properties"]["metadata"]["properties"]["name"]["maxLength"] = 3
    return definition


@pytest.fixture
def upgraded(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Objects of OLD, made under today's CRD; then the stricter one. Today's comes back at the end."""
    for name, edits in OLD.items():
        control_plane.apply(resource(edits, name))
    _install(control_plane, stricter())
    until("the stricter rules hold", lambda: _create(control_plane, resource(name="probe")))
    yield control_plane
    _install(control_plane, crd.definition())
    until("today's rules hold", lambda: not _create(control_plane, resource(name="probe")))
    control_plane.kubectl("delete", "iisvc", "--all")


def _install(plane: ControlPlane, definition: Object) -> None:
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(definition))


def _create(plane: ControlPlane, obj: Object) -> str:
    done = plane.try_kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(obj))
    return done.stderr if done.returncode else ""


def _patch(plane: ControlPlane, name: str, patch: Object) -> str:
    done = plane.try_kubectl("patch", "iisvc", name, "--type", "merge", "-p", json.dumps(patch))
    return done.stderr if done.returncode else ""


def test_row_27_kill_switch_is_never_refused(upgraded: ControlPlane) -> None:
    for name, edits in OLD.items():
        assert _create(upgraded, resource(edits, f"{name}-again")), "the stricter CRD lets this in: it proves nothing"
        for patch, enabled in ((OFF, False), (ON, True), (OFF, False)):
            assert _patch(upgraded, name, patch) == ""
            assert upgraded.get("iisvc", name)["spec"]["islands"]["enabled"] is enabled
        assert (
            _patch(upgraded, name, {"spec": {"replicas": 3, "podTemplate": {"spec": {"priorityClassName": "x"}}}}) == ""
        )

    # the same by the file that the user keeps, and on an object that carries a status
    kept = resource(OLD["with-arguments"] | {"islands/enabled": False}, "with-arguments")
    upgraded.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(kept))
    upgraded.merge("iisvc", "explicit", {"status": {"phase": "Stable"}}, subresource="status")
    assert _patch(upgraded, "explicit", ON) == ""
    assert upgraded.get("iisvc", "explicit")["status"] == {"phase": "Stable"}


def test_what_a_stricter_rule_is_about_is_refused_once_it_changes(upgraded: ControlPlane) -> None:
    lower = {"spec": {"partition": {"islands": {"maxTotalTokens": 979_968}}}}
    assert "below its floor" in _patch(upgraded, "explicit", lower)
    assert "too small" in _patch(upgraded, "derived", {"spec": {"geometry": {"kvBudgetBytes": 36_000_000_000}}})
    assert "a flag that the operator sets" in _patch(
        upgraded, "with-arguments", {"spec": {"engine": {"args": ["--tp"]}}}
    )
    assert _patch(upgraded, "with-arguments", OFF) == ""


def test_every_rule_that_sees_the_switch_passes_what_it_passed_before() -> None:
    """A rule on the root, on spec or on islands is run by the throw of the switch, and no ratcheting saves it."""
    root = schema(crd.definition())
    seen = [root, root["properties"]["spec"], root["properties"]["spec"]["properties"]["islands"]]
    rules = [copy.deepcopy(rule) for node in seen for rule in node.get("x-kubernetes-validations", ())]
    assert len(rules) >= 5
    for rule in rules:
        assert rule["optionalOldSelf"] is True
        assert "oldSelf.hasValue()" in rule["rule"]
        assert "islands.enabled" not in rule["rule"]
