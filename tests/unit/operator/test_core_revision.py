"""What a revision is: everything that makes pods differ, both halves of the pair, and nothing else."""

import json

import pytest
from support.world import World, spec

from island_engine import sizing
from island_operator.core.coupling import half_of, planned
from island_operator.core.revision import SNAPSHOT, Revision, parts_of, remembered


def of(**changes):
    return Revision(parts_of(spec(**changes)))


@pytest.mark.parametrize(
    "change",
    [
        {"model__source": {"hostPath": "/models/other"}},
        {"engine__image": "good:2"},
        {"engine__args": ["--dtype", "float32"]},
        {"engine__env": [{"name": "A", "value": "1"}]},
        {"engine__pageSize": 32},
        {"engine__chunkedPrefillSize": 1024},
        {"engine__maxRunningRequests": 9},
        {"engine__port": 8000},
        {"islands__enabled": True},
        {"islands__decodeInterval": 64},
        {"partition__islands": {"swaFullTokensRatio": "0.16", "maxTotalTokens": 19968}},
        {"partition__stock": {"swaFullTokensRatio": "0.4", "maxTotalTokens": 9920}},
        {"partition__stock__maxRunningRequests": 6},
        {"partition": {"mode": "unified"}},
        {"accelerator__count": 2},
        {"accelerator__nodeSelector": {"gpu": "h200"}},
        {"podTemplate": {"spec": {"priorityClassName": "high"}}},
    ],
    ids=str,
)
def test_what_makes_pods_differ_makes_another_revision(change):
    assert of(**change).hash != of().hash


@pytest.mark.parametrize(
    "change",
    [
        {"replicas": 7},
        {"rollout__mode": "Replace"},
        {"rollout__steps": []},
        {"rollout__deadline": "1h"},
        {"gate__profile": "standard"},
        {"gate__enabled": False},
        {"geometry__slidingWindow": 256},  # with both halves given it only serves the rules of the CRD
    ],
    ids=str,
)
def test_what_does_not_touch_pods_is_the_same_revision(change):
    assert of(**change).hash == of().hash


def test_the_name_of_a_revision_stays_over_operator_upgrades():
    """A fleet must not roll because the operator did. When this fails, find another way to store what you added."""
    assert of().hash == "e331182cfb"
    assert of(islands__enabled=True).hash == "eab9779040"


@pytest.mark.parametrize(
    ("page", "args", "name"),
    [
        (1, [], "926bd58f3b"),
        (64, [], "9f84adbfe1"),
        (256, ["--dtype", "bfloat16"], "496a3e102b"),
        (64, ["--speculative-algorithm", "EAGLE", "--speculative-num-steps=3"], "6277893793"),
    ],
)
def test_nor_does_one_whose_halves_are_derived_get_another_name(page, args, name):
    """These are from before they knew of drafts. Only a tree, or pages of less than a chain, makes them others."""
    bytes_of = {"fullBytesPerToken": 1024, "swaBytesPerToken": 2048, "draftBytesPerToken": 0, "kvBudgetBytes": 10**9}
    derived = {"partition": None, "geometry": {"slidingWindow": 128, **bytes_of}, "islands__enabled": True}
    assert of(engine__pageSize=page, engine__args=args, **derived).hash == name


def test_what_is_not_said_is_not_hashed():
    bare = spec()
    bare["engine"]["somethingNew"] = None
    bare["accelerator"]["somethingNew"] = {}
    assert Revision(parts_of(bare)).hash == of().hash


def test_an_empty_object_in_a_pod_says_something():
    template = {"spec": {"volumes": [{"name": "scratch", "emptyDir": {}}]}}
    assert of(podTemplate=template).parts["podTemplate"] == template


def test_the_order_of_keys_does_not_matter():
    turned = dict(reversed(spec().items()))
    assert Revision(parts_of(turned)).hash == of().hash


@pytest.mark.parametrize(("on", "half"), [(True, "islands"), (False, "stock")])
def test_one_function_picks_the_half_from_the_switch(on, half):
    made = spec(islands__enabled=on, islands__decodeInterval=96)
    got = half_of(parts_of(made))
    side = made["partition"][half]
    assert (got.label, got.islands) == (half, on)
    assert (got.ratio, got.max_total_tokens) == (side["swaFullTokensRatio"], side["maxTotalTokens"])
    assert got.max_running_requests == 8
    assert got.switch == (["--islands", "on", "--island-decode-interval", "96"] if on else ["--islands", "off"])


@pytest.mark.parametrize(("on", "cap"), [(True, 12), (False, 8)])
def test_the_cap_on_running_requests_moves_with_the_half(on, cap):
    """Past what its pools hold the throughput collapses, so each half may have a cap of its own."""
    half = of(islands__enabled=on, partition__islands__maxRunningRequests=12).half
    assert half.cap == ["--max-running-requests", str(cap)]


@pytest.mark.parametrize("on", [True, False])
def test_a_unified_pool_has_no_halves_and_the_switch_moves_alone(on):
    half = of(islands__enabled=on, partition={"mode": "unified", "islands": None}).half
    assert (half.ratio, half.max_total_tokens) == (None, None)
    assert half.pools == ["--enable-unified-memory"]
    assert (half.switch[1], half.cap[1]) == ("on" if on else "off", "8")


@pytest.mark.parametrize(
    ("on", "partition", "runs"),
    [
        (True, ("0.1", 1_265_344), 90),  # the cap: the SWA pool would hold (126,534 - 16,384) / 1,088 = 101
        (True, ("0.06", 1_454_400), 65),  # (87,264 - 16,384) / 1,088
        (False, ("0.06", 1_454_400), 32),  # the same pool without islands: 2 * 1,088 a request
        (True, None, 90),
    ],
)
def test_how_many_requests_a_half_is_sized_for(on, partition, runs):
    half = dict(zip(("swaFullTokensRatio", "maxTotalTokens"), partition, strict=True)) if partition else None
    engine = {"pageSize": 64, "chunkedPrefillSize": 16_384, "maxRunningRequests": 90}
    pools = {"islands": half, "stock": half} if half else {"mode": "unified"}
    assert planned({"islands": {"enabled": on}, "partition": pools, "engine": engine}, 1_024) == runs


def test_a_mode_that_is_only_said_out_loud_renames_nothing():
    assert of(partition__mode="halves").hash == of().hash


def test_a_stock_twin_differs_in_nothing_but_its_half():
    on = of(islands__enabled=True)
    assert on.stock_twin.hash == of().hash
    assert on.stock_twin.half == of().half


GEOMETRY = {"slidingWindow": 128, "fullBytesPerToken": 128, "swaBytesPerToken": 1280, "draftBytesPerToken": 0}


def test_absent_halves_are_derived_from_geometry():
    derived = of(partition=None, geometry={**GEOMETRY, "kvBudgetBytes": 20_000_000})
    halves = sizing.derive_halves(sizing.Geometry(128, 128, 1280, 0), sizing.Serving(64, 512, 8), 20_000_000)
    assert derived.half.ratio == halves.stock.ratio
    assert derived.half.max_total_tokens == halves.stock.max_total_tokens
    on = of(partition=None, geometry={**GEOMETRY, "kvBudgetBytes": 20_000_000}, islands__enabled=True)
    assert (on.half.ratio, on.half.max_total_tokens) == (halves.islands.ratio, halves.islands.max_total_tokens)


TREE = ("EAGLE", 3, 4, 16)  # for which SGLang reserves 1,024 tokens of every request at pages of 64
FLAGS = [
    f"--speculative-{flag} {value}"
    for flag, value in zip(("algorithm", "num-steps", "eagle-topk", "num-draft-tokens"), TREE, strict=True)
]


def test_halves_are_derived_with_what_is_reserved_for_a_tree_of_drafts():
    budget = {**GEOMETRY, "kvBudgetBytes": 100_000_000}
    drafted = of(partition=None, geometry=budget, islands__enabled=True, engine__args=FLAGS)
    serving = sizing.Serving(64, 512, 8, ahead=1024)
    halves = sizing.derive_halves(sizing.Geometry(128, 128, 1280, 0), serving, 100_000_000)
    assert (drafted.half.ratio, drafted.half.max_total_tokens) == (
        halves.islands.ratio,
        halves.islands.max_total_tokens,
    )
    plain = of(partition=None, geometry=budget, islands__enabled=True)
    assert planned(drafted.parts, 128) == planned(plain.parts, 128) == 8
    assert planned({**plain.parts, "engine": drafted.parts["engine"]}, 128) < 8  # those halves are too lean for it


def test_halves_that_cannot_be_derived_are_one_sentence():
    with pytest.raises(ValueError, match=r"geometry\.kvBudgetBytes"):
        of(partition=None, geometry={**GEOMETRY, "kvBudgetBytes": 1000})


def child(text):
    return {"kind": "Deployment", "metadata": {"name": "x", "annotations": {SNAPSHOT: text}}}


def test_a_snapshot_gives_the_same_revision_back():
    assert remembered(child(of().text), of().hash) == of()


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "7",
        json.dumps({**of().parts, "islands": {"enabled": True}}),  # the lean half would then run without a gate
    ],
    ids=["no JSON", "no object", "a number", "forged"],
)
def test_a_snapshot_that_is_not_what_it_claims_is_not_used(text):
    assert remembered(child(text), of().hash) is None


def test_no_snapshot_no_revision():
    assert remembered(None) is None
    assert remembered({"metadata": {"name": "x"}}, "e331182cfb") is None


def test_what_is_read_of_a_snapshot_is_shared_and_nobody_writes_into_it():
    """By a whole life with gates, canaries and a template that is merged into every pod."""
    world = World(islands__enabled=True, podTemplate={"spec": {"containers": [{"name": "engine", "env": []}]}}).settle()
    for change in ({"engine__image": "good:2"}, {"islands__enabled": False}, {"engine__image": "crash:1"}):
        world.edit(**change)
        world.settle()
    deployments = [obj for (kind, _), obj in world.store.items() if kind == "Deployment"]
    assert len(deployments) > 2
    for deployment in deployments:
        read = remembered(deployment)
        assert read is remembered(deployment)
        assert Revision(read.parts).text == deployment["metadata"]["annotations"][SNAPSHOT]
