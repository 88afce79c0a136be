"""The health check of docs/argo-cd.md in Argo CD's interpreter, gopher-lua, with the libraries that Argo CD opens."""

import json
import subprocess

import pytest
import yaml
from support.control_plane import ROOT

from cluster import binaries


def check():
    text = (ROOT / "docs/argo-cd.md").read_text()
    block = text.split("```yaml\n")[1].split("```")[0]
    return yaml.safe_load(block)["data"]["resource.customizations.health.radix-islands.dev_InferenceService"]


@pytest.fixture(scope="module")
def argo_cd():
    """`argo_cd(script, object)`: the health that the script tells."""
    program = binaries.ensure_judges() / "argohealth"

    def told(script, given):
        asked = json.dumps({"script": script, "objects": [given]})
        return json.loads(subprocess.run([program], input=asked, capture_output=True, text=True, check=True).stdout)

    return told


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
def test_argo_cd_is_told_the_health(argo_cd, given, health):
    status, message = health.split("|")
    assert argo_cd(check(), given) == {"status": status, "message": message}


@pytest.mark.parametrize(
    ("script", "error"),
    [("return string.upper('x')", "non-table object(nil)"), ("while true do end", "deadline"), ("return 1", "a table")],
)
def test_what_argo_cd_would_not_run_fails_here_too(argo_cd, script, error):
    assert error in argo_cd(script, {})["error"]
