"""The chart's alerts under promtool: each fires when it should, and every query of the dashboard is one."""

import subprocess

import yaml
from support import promql

from cluster import debs

HERE = promql.Path(__file__).parent
RULES = promql.FILES / "alerts.yaml"


def promtool(*args):
    done = subprocess.run([debs.program("promtool"), *args], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_fires_when_it_should_and_only_then(tmp_path):
    tests = tmp_path / "tests.yaml"
    tests.write_text((HERE / "alerts.yaml").read_text().replace("RULES", str(RULES)))
    promtool("test", "rules", tests)
    tried = {
        case["alertname"]
        for test in yaml.safe_load(tests.read_text())["tests"]
        for case in test["alert_rule_test"]
        if case.get("exp_alerts")
    }
    assert tried == {rule["alert"] for rule in promql.rules()}


def test_every_query_of_the_dashboard_is_promql(tmp_path):
    variables = {"$namespace": ".*", "$inferenceservice": ".*", "$__rate_interval": "1m"}
    rules = []
    for number, (where, expression) in enumerate(promql.expressions().items()):
        for name, value in variables.items():
            expression = expression.replace(name, value)
        assert "$" not in expression, f"{where}: a variable that the dashboard does not have"
        rules.append({"record": f"r{number}", "expr": expression})
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run(
        [debs.program("promtool"), "check", "rules", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
