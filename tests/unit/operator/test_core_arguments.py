"""What islands do not go with is said before a gate boots, and stands in the way of nothing but islands."""

import pytest
from support.world import HALF, World

from island_engine import refusals
from island_operator.api.rules import COUPLED_FLAGS
from island_operator.core.arguments import ALIASES, REFUSED, UNPROVED_DRAFTS, refused, starved


def test_the_flags_are_those_that_the_engine_refuses():
    """The rest of the engine's are never in engine.args: the API refuses the coupled ones."""
    assert set(REFUSED) == {rule.flag for rule in refusals.RULES} - set(COUPLED_FLAGS)
    assert UNPROVED_DRAFTS == refusals.UNPROVED_DRAFTS


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        (["--tp", "1", "--enable-hierarchical-cache"], "--enable-hierarchical-cache"),
        (["--enable-hicache"], "--enable-hicache"),
        (["--pp-size", "2"], "--pp-size"),
        (["--pipeline-parallel-size=2"], "--pipeline-parallel-size"),
        (["--disaggregation-mode prefill"], "--disaggregation-mode"),
        (["--speculative-algorithm", "dflash"], "--speculative-algorithm"),
        (["--swa-prefix-tails=0"], "--swa-prefix-tails"),
    ],
    ids=str,
)
def test_a_flag_that_islands_refuse_is_named_with_what_to_do(arguments, flag):
    told = refused(arguments)
    assert told.startswith(f"spec.engine.args: {flag} does not go with islands: ")
    assert told.endswith(", or set spec.islands.enabled to false")


@pytest.mark.parametrize("full", [*REFUSED, *ALIASES])
def test_an_abbreviation_is_told_with_the_whole_flag(full):
    value = {"--speculative-algorithm": "DFLASH"}.get(full, "2")
    for end in range(len("--") + 1, len(full)):
        told = refused([f"{full[:end]}={value}"])
        assert told is not None
        assert f"{full[:end]} (short for --" in told
    assert f"{full[:-1]} (short for {full}) does not go with islands: " in refused([full[:-1], value])


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--pp-s", "1"],
        ["--", "--x"],
        ["--speculative-algo=NGRAM", "--enable-metrics-for-all-schedulers", "--pp-size-of-mine", "9"],
        ["--pp-size", "1", "--pipeline-parallel-size=1"],
        ["--disaggregation-mode=null", "--decoupled-spec-role", "null"],
        ["--speculative-algorithm", "EAGLE3"],
        ["--chat-template", "enable-lmcache"],
    ],
    ids=str,
)
def test_what_goes_with_islands(arguments):
    assert refused(arguments) is None


@pytest.mark.parametrize("pace", ["--pace", "--pace=gemma4-26b-h100", "--pace gemma4-26b-h100"])
def test_a_paced_engine_is_told_before_a_gate_boots_because_no_retry_would_pass(pace):
    world = World(engine__args=[pace]).settle()
    assert world.condition("Ready")["status"] == "True", "the stock half needs no gate"
    world.edit(islands__enabled=True)
    world.settle()
    assert world.jobs_made == []
    assert world.condition("Ready")["reason"] == "ArgumentRefused"
    assert world.condition("Ready")["message"].endswith("set spec.gate.enabled to false")
    world.edit(gate__enabled=False)
    world.settle()
    assert world.status["islands"]["enabled"] is True


def test_no_gate_boots_for_it_what_serves_stays_and_the_stock_half_takes_it():
    world = World(islands__enabled=True).settle()
    before, jobs = {p["metadata"]["uid"] for p in world.pods()}, list(world.jobs_made)
    world.edit(engine__args=["--enable-hierarchical-cache"])
    world.settle()
    ready, degraded = world.condition("Ready"), world.condition("Degraded")
    assert ready["status"] == "False"
    assert ready["reason"] == degraded["reason"] == "ArgumentRefused"
    assert "--enable-hierarchical-cache" in ready["message"]
    assert world.jobs_made == jobs
    assert {p["metadata"]["uid"] for p in world.pods()} == before
    world.edit(islands__enabled=False)
    world.settle()
    assert world.condition("Ready")["status"] == "True"
    assert {p["metadata"]["labels"][HALF] for p in world.pods()} == {"stock"}
    assert "--enable-hierarchical-cache" in world.pods()[0]["spec"]["containers"][0]["args"]


def parts(arguments, count=1, **more):
    return {"engine": {"args": arguments}, "accelerator": {"resource": "nvidia.com/gpu", "count": count}, **more}


def limits(devices, name="engine"):
    resources = {"limits": devices}
    return {"spec": {"containers": [{"name": name, "resources": resources}]}}


@pytest.mark.parametrize(
    ("arguments", "said", "takes"),
    [
        (["--tp-size", "2"], "--tp-size 2", 2),
        (["--tp", "2"], "--tp-size 2", 2),
        (["--tp=4"], "--tp-size 4", 4),
        (["--tensor-parallel-size 2"], "--tp-size 2", 2),
        (["--tensor-par=2"], "--tp-size 2", 2),
        (["--dp-size", "2"], "--dp-size 2", 2),
        (["--data-parallel-size=2"], "--dp-size 2", 2),
        (["--pp-size=3"], "--pp-size 3", 3),
        (["--pipeline-parallel-size", "3"], "--pp-size 3", 3),
        (["--tp", "2", "--dp", "2", "--dtype", "auto"], "--tp-size 2 --dp-size 2", 4),
        (["--tp", "8", "--tp-size", "2"], "--tp-size 2", 2),
        (["--tp", "2", "--dp", "2", "--enable-dp-attention"], "--tp-size 2", 2),
        (["--tp", "2", "--dp", "2", "--attn-dp-size", "2"], "--tp-size 2 --dp-size 2", 4),
        (["--tp", "2", "--dp", "2", "--enable-dp-attention", "--attention-data=2"], "--tp-size 2 --dp-size 2", 4),
    ],
    ids=str,
)
def test_more_devices_than_a_pod_has_are_told_with_the_field(arguments, said, takes):
    assert starved(parts(arguments)) == (
        f"spec.engine.args: {said} takes {takes} of nvidia.com/gpu, and a pod has 1: set spec.accelerator.count to "
        f"{takes}, or lower it"
    )
    assert starved(parts(arguments, count=takes)) is None


@pytest.mark.parametrize(
    "given",
    [
        parts([]),
        parts(["--tp", "1"]),
        parts(["--tp", "2"], count=0),  # engines on CPUs
        parts(["--tp-size", "two"]),  # SGLang says it better
        parts(["--tp", "8", "--nnodes", "4"]),
        parts(["--tp", "8", "--nnode=4"]),
        parts(["--tp=8", "--base-gpu", "0"]),
        parts(["--tp-size-of-mine", "2", "--moe-dense-tp-size", "4", "--attn-dp-size=2"]),
        parts(["--tp", "2"], podTemplate=limits({"nvidia.com/gpu": "2"})),
        parts(["--tp", "2"], podTemplate=limits({"nvidia.com/mig-3g.40gb": 2})),
    ],
    ids=str,
)
def test_what_a_pod_has_enough_of(given):
    assert starved(given) is None


def test_a_pod_template_that_gives_fewer_or_is_about_another_container():
    assert "a pod has 1" in starved(parts(["--tp", "2"], count=2, podTemplate=limits({"nvidia.com/gpu": 1})))
    assert starved(parts(["--tp", "2"], podTemplate=limits({"nvidia.com/gpu": 2}, name="sidecar")))


def test_it_is_told_for_both_halves_before_anything_boots_and_what_serves_stays():
    world = World().settle()
    before, jobs = {p["metadata"]["uid"] for p in world.pods()}, list(world.jobs_made)
    for islands in (False, True):
        world.edit(engine__args=["--tp", "2"], islands__enabled=islands)
        world.settle()
        for kind in ("Ready", "Degraded"):
            assert world.condition(kind)["reason"] == "ArgumentRefused"
            assert "set spec.accelerator.count to 2" in world.condition(kind)["message"]
        assert world.jobs_made == jobs
        assert {p["metadata"]["uid"] for p in world.pods()} == before


def test_pools_in_which_islands_do_not_boot_are_told_where_an_older_crd_let_them_in():
    """A lone prompt needs 3 * 128 + 4 * 64, and two pages may be lost to rounding."""
    world = World(engine__maxRunningRequests=1, engine__chunkedPrefillSize=64).settle()
    world.edit(partition__islands__maxTotalTokens=4_200, islands__enabled=True)  # 576 tokens
    world.settle()
    assert world.jobs_made == []
    assert world.condition("Ready")["reason"] == "PartitionInvalid"
    assert world.condition("Ready")["message"] == (
        "spec.partition.islands: its SWA pool has 576 tokens, and islands need 640 for a prompt of several chunks: use "
        "maxTotalTokens 5120 at this swaFullTokensRatio, or set spec.islands.enabled to false"
    )
    world.edit(partition__islands__maxTotalTokens=5_120)
    world.settle()
    assert world.status["islands"]["enabled"] is True
