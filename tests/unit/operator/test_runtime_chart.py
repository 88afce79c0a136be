"""The chart holds what the code needs: its CRD, exactly its rights, a restricted pod."""

from pathlib import Path

import yaml
from support import toy_core

from island_operator.cli.main import as_template, main
from island_operator.cluster.cache import Cache, Key
from island_operator.cluster.fake import FakeCluster
from island_operator.cluster.kinds import KINDS, WATCHED
from island_operator.core.model import Event, Plan, Record
from island_operator.runtime.events import Events
from island_operator.runtime.feed import Feed
from island_operator.runtime.lease import Lease
from island_operator.runtime.reconciler import Reconciler
from island_operator.runtime.records import Recorder

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts/radix-islands"
CRD = ROOT / "crds/inferenceservices.radix-islands.dev.yaml"
OWNED = ("Deployment", "Service", "Job", "PodDisruptionBudget", "HTTPRoute")


def test_the_charts_crd_is_the_golden_one_kept_at_uninstall():
    template = (CHART / "templates/crd.yaml").read_text()
    assert template == as_template(CRD.read_text()), (
        "regenerate: island-operator crd --chart > charts/radix-islands/templates/crd.yaml"
    )
    rendered = yaml.safe_load("\n".join(line for line in template.splitlines() if "{{" not in line))
    assert rendered["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert rendered == yaml.safe_load(CRD.read_text())


def test_crd_prints_the_golden_file(capsys):
    assert main(["crd"]) == 0
    assert capsys.readouterr().out == CRD.read_text()


def granted():
    """(group, resource, verb) of every rule."""
    text = (CHART / "templates/rbac.yaml").read_text()
    plain = "\n".join(line for line in text.splitlines() if "{{" not in line)
    return {
        (group, resource, verb)
        for document in yaml.safe_load_all(plain)
        for rule in document.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


async def used():
    """Every request that the parts send, from start to release."""
    cluster, cache = FakeCluster(), Cache()
    cluster.put(toy_core.resource(**{"radix-islands.dev/retry": "1"}))
    child = {"name": "x", "namespace": "default", "labels": {"radix-islands.dev/instance": "x"}}
    goes = [cluster.put({"kind": kind, "metadata": {**child, "name": f"{kind.lower()}-goes"}}) for kind in OWNED]
    cluster.put({"kind": "Deployment", "metadata": {**child, "name": "tampered"}, "spec": {"coupled": 1}})
    cluster.put({"kind": "Job", "metadata": {"name": "taken", "namespace": "default"}})

    def reconcile(snapshot, now):
        names = [*((kind, "made") for kind in OWNED), ("Job", "taken")]
        makes = [{"kind": kind, "metadata": {**child, "name": name}, "spec": {}} for kind, name in names]
        tampered = {"kind": "Deployment", "metadata": {**child, "name": "tampered"}, "spec": {}}
        return Plan((*makes, tampered), tuple(goes), {"phase": "P"}, (), None, ("radix-islands.dev/retry",))

    lease = Lease(cluster, "me", "system")
    await lease.take()
    await lease._try()

    class Inbox:
        def add(self, key, *, urgent=False):
            pass

    await Feed(cluster, cache, Inbox()).prime()
    reconciler = Reconciler(cluster, cache, None, toy_core.core(reconcile))
    cluster.put(toy_core.resource(image="edited", **{"radix-islands.dev/retry": "1"}))
    for _ in range(3):  # the first one is on old news: it reads the object again
        await reconciler(Key("default", "x"))
    for _ in range(2):
        events = Events(cluster, "me")
        await events._post(cluster.objects["InferenceService", "default", "x"]["metadata"], Event("Normal", "A", "b"))
    manifest = {"kind": "ConfigMap", "metadata": {**child, "name": "report"}, "data": {}}
    await Recorder(cluster, lambda _key: None)._store(Record(manifest, "pod"))
    await lease.release()
    return cluster.calls


async def test_row_26_the_chart_grants_exactly_what_the_code_asks_for():
    asked = {(KINDS[kind].group, KINDS[kind].plural, "watch") for kind in WATCHED}  # kopf's, as triggers.py registers
    for verb, what, _ in await used():
        kind, _, subresource = what.partition("/")
        asked.add((KINDS[kind].group, KINDS[kind].plural + (f"/{subresource}" if subresource else ""), verb))
    asked.add(("radix-islands.dev", "inferenceservices/finalizers", "update"))  # blockOwnerDeletion on the children
    assert granted() == asked


def test_the_pod_is_restricted():
    text = (CHART / "templates/deployment.yaml").read_text()
    plain = yaml.safe_load("\n".join(line for line in text.splitlines() if "{{" not in line))
    pod = plain["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
