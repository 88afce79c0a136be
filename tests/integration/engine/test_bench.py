"""The in-process benches at a tiny geometry: they run, their JSON holds, they tell a worse arm from a better one."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import TYPE_CHECKING, Any

import pytest

from island_engine import cli
from island_engine.bench import cli as benches
from island_engine.bench import report, traffic, worker
from island_engine.bench.rig import Rig, Sizes
from island_engine.islands import mutation
from island_engine.islands.cache import IslandRadixCache

if TYPE_CHECKING:
    import random
    from pathlib import Path

TINY = ["--page", "16", "--window", "64", "--chunk", "256", "--tokens", "8192", "--prompt", "512", "--output", "512"]
FLAGS = {
    "hold": [*TINY, "--ratio", "0.2", "--steps", "300", "--requests", "24"],
    "admission": [*TINY, "--ratio", "0.2", "0.1", "--steps", "400", "--requests", "24"],
    "reuse": [*TINY, "--decoded", "300"],
    "overhead": [*TINY, "--requests", "4", "--ratio", "0.3", "--turns", "3", "--rounds", "3"],
    "conservation": ["--runs", "18"],
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The result of every bench, through the command line."""
    folder = tmp_path_factory.mktemp("bench")
    results = {}
    for name, flags in FLAGS.items():
        path = folder / f"{name}.json"
        assert cli.main(["bench", name, "--json", str(path), "--plot", str(folder / f"{name}.png"), *flags]) == 0
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        results[name] = report.read(path)
    return results


@pytest.mark.parametrize("name", FLAGS)
def test_it_measures_every_arm(name: str, found: dict[str, dict[str, Any]]) -> None:
    assert list(found[name]["arms"]) == list(benches.load(name).ARMS)


def test_hold_tells_lazy_from_stock_from_islands(found: dict[str, dict[str, Any]]) -> None:
    arms = found["hold"]["arms"]
    assert arms["lazy"]["hold_mean"] > arms["stock"]["hold_mean"] > arms["islands"]["hold_mean"]
    assert arms["lazy"]["roomy_mean"] > arms["stock"]["roomy_mean"]
    assert arms["islands"]["hold_max"] <= 64 + 3 * 16


def test_admission_tells_who_admits_what_it_must_retract(found: dict[str, dict[str, Any]]) -> None:
    arms = found["admission"]["arms"]
    for ratio in ("0.20", "0.10"):
        assert arms["islands"][ratio]["swa_retractions"] == arms["islands"][ratio]["recomputed"] == 0
        assert (
            arms["islands"][ratio]["sustained"] > arms["stock"][ratio]["sustained"] >= arms["lazy"][ratio]["sustained"]
        )
        assert arms["islands"][ratio]["sustained"] <= arms["islands"][ratio]["bound"] + 1
    assert arms["stock"]["0.10"]["swa_retractions"] > 0
    assert not any(case["stuck"] or case["leaks"] for arm in arms.values() for case in arm.values())


def test_reuse_tells_who_publishes_while_it_decodes(found: dict[str, dict[str, Any]]) -> None:
    arms = found["reuse"]["arms"]
    assert arms["stock"]["hit_tokens"] == 512
    assert arms["islands"]["hit_tokens"] >= 512 + 300 - 2 * 64
    assert arms["islands"]["recompute_after_retraction"] <= 16 < arms["stock"]["recompute_after_retraction"]


def test_overhead_is_paired_with_stock(found: dict[str, dict[str, Any]]) -> None:
    arms = found["overhead"]["arms"]
    assert arms["stock"]["ours_ms"] == 0
    assert all(
        one[key] > 0 for one in arms.values() for key in ("step_ms", "cpu_ms", "insert_us", "match_us", "evict_us")
    )
    assert arms["stock"]["inserts_per_commit"] == 1 < arms["islands"]["inserts_per_commit"]


def test_conservation_finds_nothing_but_the_planted_fault(found: dict[str, dict[str, Any]]) -> None:
    one = found["conservation"]["arms"]["islands"]
    assert (one["runs"], one["leaks"], one["wrong"]) == (18, 0, [])
    assert len(one["modes"]) == 6
    assert min(one["aborted"], one["retracted"], one["prefill_islands"], one["decode_islands"], one["crossed"]) > 0
    assert one["mutants_caught"] >= one["mutants"] * 2 // 3


def test_the_planted_fault_is_what_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    life = traffic.draw(1)
    assert traffic.live(life, IslandRadixCache)[1] == []
    monkeypatch.setenv(mutation.MUTATE, mutation.FRONTIER)
    monkeypatch.setenv(mutation.ALLOW, "1")
    assert "CorruptKvError" in traffic.live(life, IslandRadixCache)[1][0]


def test_a_lost_page_is_seen() -> None:
    rig = Rig(IslandRadixCache, Sizes())
    req = rig.add(list(range(300)), new=50)
    while not req.output_ids:
        rig.step()
    rig.alloc.swa_attn_allocator.alloc(16)
    assert rig.unaccounted() == 16
    rig.run()
    assert "free (full, swa)" in rig.leaks()[0]


def test_a_planted_leak_fails_the_bench(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    live = traffic._live

    def leaky(engine: Rig, life: traffic.Life, rng: random.Random) -> int:
        aborted = live(engine, life, rng)
        engine.alloc.swa_attn_allocator.alloc(life.sizes.page)
        return aborted

    monkeypatch.setattr(traffic, "_live", leaky)  # the bench's workers are forked from here
    path = tmp_path / "conservation.json"
    assert cli.main(["bench", "conservation", "--runs", "2", "--json", str(path)]) == 1
    assert "bench conservation FAILED: islands: 2 leaks" in capsys.readouterr().err
    assert not path.exists()


def test_an_arm_that_fails_says_why() -> None:
    def work(_arm: str) -> Any:
        yield 0.5
        raise ValueError("no such thing")

    with worker.workers(["stock"], work) as started:
        assert started["stock"].next() == 0.5
        with pytest.raises(RuntimeError, match=r"arm stock failed:(.|\n)*no such thing"):
            started["stock"].next()


def test_an_arm_that_dies_is_not_waited_for() -> None:
    def work(_arm: str) -> Any:
        import os

        os._exit(7)
        yield

    with worker.workers(["stock"], work) as started, pytest.raises(RuntimeError, match=r"died \(exit code 7\)"):
        started["stock"].next()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--window", "100"], "--window 100: use a multiple of --page 64"),
        (["--tokens", "4096"], "--tokens 4096: use at least --prompt plus --output"),
    ],
)
def test_bad_geometry_is_refused(flags: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "hold", *flags]) == 2
    assert capsys.readouterr().err.strip() == f"island-engine: {says}"


def test_a_bench_is_made_of_what_the_registry_asks_for() -> None:
    names = ArgumentParser().add_subparsers()
    for name in benches.BENCHES:
        module = benches.load(name)
        assert name == module.NAME
        assert set(module.ARMS) <= set(report.ARMS)
        benches.add_bench(names, module)
