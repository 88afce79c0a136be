"""What a PromQL expression asks for: metrics, the labels that it selects and groups them by, and what is rated."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import yaml

FILES = Path(__file__).parents[2] / "charts/radix-islands/files"
_WORDS = {"and", "or", "unless", "by", "without", "on", "ignoring", "group_left", "group_right", "bool", "offset"}
_STRINGS, _NAME = re.compile(r'"[^"]*"'), r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
_SELECTOR = re.compile(rf"({_NAME})\s*(?:\{{([^}}]*)\}})?\s*(\[)?")


@dataclass(frozen=True)
class Asked:
    """One selector of an expression."""

    metric: str
    labels: frozenset[str]  # that it matches, and that the expression groups by
    rated: bool  # over a range: only counters make sense


def asked(expression: str) -> list[Asked]:
    """Every selector. Grouping labels count for each selector of the expression."""
    plain = _STRINGS.sub('""', re.sub(r"\[[^\]]*\]", "[]", expression))
    grouped = {name.strip() for found in _GROUPING.findall(plain) for name in found.split(",") if name.strip()}
    plain = _GROUPING.sub(" ", plain)
    found = []
    for match in _SELECTOR.finditer(plain):
        metric, matchers, ranged = match[1], match[2] or "", match[3]
        if metric in _WORDS or plain[match.end() :].lstrip().startswith("(") or plain[match.end(1) :].startswith("("):
            continue  # an operator, a function or an aggregation
        labels = set(re.findall(rf"({_NAME})\s*[=!]", matchers))
        found.append(Asked(metric, frozenset(labels | grouped), ranged is not None))
    return found


def rules() -> list[dict[str, str]]:
    """Every rule of the alerts."""
    return [rule for group in yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, object]]:
    """Every panel of the dashboard, rows left out."""
    dashboard = json.loads((FILES / "dashboard.json").read_text())
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def expressions() -> dict[str, str]:
    """Where it stands -> expression, of every alert, panel and variable."""
    found = {f"alert {rule['alert']}": rule["expr"] for rule in rules()}
    for panel in panels():
        for target in panel["targets"]:  # type: ignore[attr-defined]
            found[f"panel {panel['title']!r} {target['refId']}"] = target["expr"]
    for variable in json.loads((FILES / "dashboard.json").read_text())["templating"]["list"]:
        if variable["type"] == "query":
            inner = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
            assert inner, variable
            found[f"variable {variable['name']}"] = f"max by ({inner[2]}) ({inner[1]})"
    return found
