"""The health check of docs/argo-cd.md under Lua 5.1."""

import subprocess

import pytest
import yaml
from support.control_plane import ROOT

from cluster import debs


def check():
    text = (ROOT / "docs/argo-cd.md").read_text()
    block = text.split("```yaml\n")[1].split("```")[0]
    return yaml.safe_load(block)["data"]["resource.customizations.health.radix-islands.dev_InferenceService"]


def lua(value):
    """A literal. Argo CD passes what the API server sent: no null of a struct, arrays from 1."""
    if isinstance(value, dict):
        return "{" + ", ".join(f'["{name}"] = {lua(inner)}' for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "{" + ", ".join(map(lua, value)) + "}"
    return f'"{value}"' if isinstance(value, str) else str(value)


def obj(generation=2, **conditions):
    """Conditions as status or (status, reason)."""
    pairs = {kind: (told, "Why") if isinstance(told, str) else told for kind, told in conditions.items()}
    told = [{"type": kind, "status": s, "reason": r, "message": f"{kind} says"} for kind, (s, r) in pairs.items()]
    return {"metadata": {"generation": generation}, "status": {"observedGeneration": 2, "conditions": told}}


STABLE = {"Ready": "True", "Available": "True", "Progressing": "False", "Degraded": "False", "RolledBack": "False"}
ROLLING = {**STABLE, "Ready": "False", "Progressing": ("True", "Gating")}


@pytest.mark.parametrize(
    ("given", "health"),
    [
        ({"metadata": {"generation": 1}}, "Progressing|the operator has not seen this spec yet"),
        (obj(3, **STABLE), "Progressing|the operator has not seen this spec yet"),
        (obj(**STABLE), "Healthy|Ready says"),
        (obj(**ROLLING), "Progressing|Progressing says"),
        (obj(**ROLLING | {"Progressing": ("True", "Paused")}), "Suspended|Progressing says"),
        (obj(**ROLLING | {"Degraded": "True"}), "Degraded|Degraded says"),
        (obj(**STABLE | {"Ready": "False", "Degraded": "True", "RolledBack": "True"}), "Degraded|Degraded says"),
        (obj(**STABLE | {"Ready": "False", "Available": "False"}), "Degraded|Available says"),
        (obj(**STABLE | {"Ready": "False"}), "Progressing|Ready says"),
    ],
)
def test_argo_cd_is_told_the_health(given, health):
    run = 'local h = health()\nprint(h.status .. "|" .. h.message)'
    program = f"obj = {lua(given)}\nlocal function health()\n{check()}\nend\n{run}"
    done = subprocess.run([debs.program("lua5.1"), "-"], input=program, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, health), done.stderr
