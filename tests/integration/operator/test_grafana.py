"""The dashboard, read by Grafana's own types: its Foundation SDK, strictly. It does not check enumerations."""

import copy
import json
import subprocess

import pytest
from support import promql

from cluster import binaries

DASHBOARD = json.loads((promql.FILES / "dashboard.json").read_text())


@pytest.fixture(scope="module")
def grafana():
    """`grafana(dashboard)`: what it complains of."""
    program = binaries.ensure_judges() / "grafanaschema"

    def complaints(dashboard):
        done = subprocess.run([program], input=json.dumps(dashboard), capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    return complaints


def test_grafana_knows_every_field_of_the_dashboard_and_misses_none(grafana):
    assert grafana(DASHBOARD) == []


def panel(dashboard, kind):
    return next(found for found in dashboard["panels"] if found["type"] == kind)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda d: d.update(refresh=30), "refresh"),
        (lambda d: panel(d, "timeseries")["targets"][0].update(expression="up"), "unexpected field 'expression'"),
        (lambda d: panel(d, "timeseries")["fieldConfig"]["defaults"].update(max="1"), "fieldConfig"),
        (lambda d: panel(d, "timeseries")["fieldConfig"]["defaults"]["custom"].update(width=2), "'width'"),
        (lambda d: panel(d, "stat")["options"].pop("textMode"), "textMode: required field is missing"),
        (lambda d: panel(d, "table").update(type="tabel"), "nobody here knows"),
    ],
    ids=["type", "query", "config", "custom", "missing", "panel"],
)
def test_a_slip_is_told(grafana, spoil, told):
    spoilt = copy.deepcopy(DASHBOARD)
    spoil(spoilt)
    (complaint,) = grafana(spoilt)
    assert told in complaint
