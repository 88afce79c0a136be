"""Speculation for real on a CPU, islands on: SGLang's own workers, drafts, verification and allocation ahead of the
commit, against the same model without speculation and without islands. fp32, greedy; each engine is a fork.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import torch
from support.drafts import eagle, echo
from support.engine import Answer, Engine, apart, tiny

from island_engine.bench.tally import Tally
from island_engine.islands.cache import IslandRadixCache
from island_engine.platform import attention, speculation

if TYPE_CHECKING:
    from pathlib import Path

PAGE, WINDOW, CHUNK, INTERVAL, NODES = 8, 32, 64, 48, 4  # an interval above w + p: islands leave tombstones between
FLAGS = (
    *("--dtype", "float32", "--page-size", str(PAGE), "--chunked-prefill-size", str(CHUNK), "--context-length", "512"),
    *("--max-total-tokens", "4096", "--swa-full-tokens-ratio", "0.25", "--max-running-requests", "8"),
)
CHAIN = ("--speculative-num-steps", "3", "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", str(NODES))
BRANCHES = ("--speculative-num-steps", "3", "--speculative-eagle-topk", "2", "--speculative-num-draft-tokens", "6")
ISLANDS = ("--radix-cache-backend", "islands")


def prompt(length: int, seed: int) -> list[int]:
    rng = random.Random(seed)  # noqa: S311 - repeatable on purpose
    return [rng.randrange(4, 512) for _ in range(length)]


@dataclass
class Arm:
    """What one engine answered, and what was left of its pools."""

    answers: dict[str, list[Answer]]
    lost: tuple[int, int, int]
    overlap: bool
    hot: list[int] = field(default_factory=list)  # of a request with a temperature
    cold: list[int] = field(default_factory=list)  # of one without, after the same first token
    ahead: tuple[int, int] = (0, 0)  # slots set aside for drafts, and the most tokens that a step commits
    tally: Tally = field(default_factory=Tally)

    @property
    def tokens(self) -> dict[str, list[list[int]]]:
        return {name: [answer.tokens for answer in answers] for name, answers in self.answers.items()}

    @property
    def steps(self) -> dict[str, list[int]]:
        return {name: [answer.steps for answer in answers] for name, answers in self.answers.items()}

    def cached(self, name: str) -> int:
        return self.answers[name][0].cached

    def accepted(self, name: str) -> float:
        """Tokens that a verify step of this request committed, on average."""
        return len(self.answers[name][0].tokens) / self.answers[name][0].steps


def serve(model: Path, *flags: str) -> Arm:
    """Every way to meet islands: cold, hit, several decode islands, an extension of them, a branch, a crowd."""
    engine = Engine(model, *FLAGS, *flags, vocabulary=0)
    cache, arm = engine.scheduler.tree_cache, Arm({}, (0, 0, 0), engine.scheduler.enable_overlap)
    if type(cache) is IslandRadixCache:
        cache.interval, cache.metrics = INTERVAL, arm.tally
        arm.ahead = cache.holds.lag, cache.holds.block

    def ask(name: str, prompts: list[list[int]], new: int) -> list[int]:
        arm.answers[name] = engine.run(prompts, new)
        return arm.answers[name][0].tokens

    ask("cold", [prompt(150, 1)], 8)
    ask("hit", [prompt(150, 1)], 8)
    path = prompt(20, 2)
    path += ask("long", [path], 3 * INTERVAL)
    ask("again", [path[:20]], INTERVAL)  # what NGRAM has seen, it drafts right
    ask("extension", [path + prompt(10, 3)], 8)
    ask("branch", [path[: 20 + 2 * INTERVAL] + prompt(10, 4)], 8)
    ask("crowd", [path[: 10 * n] + prompt(15 * n, n) for n in range(1, 7)], 20)
    engine.arriving.append(hot := engine.request(prompt(150, 1), 8, temperature=1))
    engine.run([], 0)
    first, *arm.hot = engine.answer(hot).tokens  # sampled by the prefill
    arm.cold = engine.run([[*prompt(150, 1), first]], 7)[0].tokens
    arm.lost = engine.lost()
    return arm


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny(tmp_path_factory.mktemp("models") / "tiny-gemma", WINDOW)


@pytest.fixture(scope="module")
def plain(model: Path) -> Arm:
    return apart(serve, model)


@pytest.fixture(scope="module")
def drafts(model: Path, plain: Arm, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    folder = tmp_path_factory.mktemp("drafts")
    text = prompt(20, 2) + plain.answers["long"][0].tokens
    echo(model, folder / "echo")
    apart(eagle, model, folder / "eagle", text, 1)
    apart(eagle, model, folder / "eagle3", text, 3)
    return {draft.name: ("--speculative-draft-model-path", str(draft)) for draft in folder.iterdir()}


@pytest.fixture(scope="module")
def speculating(model: Path, drafts: dict[str, tuple[str, str]]) -> dict[str, Arm]:
    """Chains and EAGLE3's trees with overlap, as on a GPU; NGRAM's trees, which need pages of one token, without."""
    itself = ("--speculative-draft-model-path", str(model))
    flags = {
        "ngram": ("NGRAM", "--speculative-ngram-max-bfs-breadth", "1", "--speculative-num-draft-tokens", str(NODES)),
        "tree": ("NGRAM", "--speculative-ngram-max-bfs-breadth", "3", "--page-size", "1", "--disable-overlap-schedule"),
        "standalone": ("STANDALONE", *CHAIN, *itself),
        "frozen-kv-mtp": ("NEXTN", *CHAIN, *drafts["echo"]),
        "eagle": ("EAGLE", *CHAIN, *drafts["eagle"]),
        "eagle3": ("EAGLE3", *BRANCHES, *drafts["eagle3"]),
    }
    return {name: apart(serve, model, *ISLANDS, "--speculative-algorithm", *more) for name, more in flags.items()}


EVERY = pytest.mark.parametrize("name", ["ngram", "tree", "standalone", "frozen-kv-mtp", "eagle", "eagle3"])
# The most that a step may write: a chain's nodes; NGRAM's default; two branches of EAGLE3, each of which may begin
# at the end of a page and then has two of them.
AHEAD = {"tree": 12, "eagle3": 2 * 2 * PAGE}


@EVERY
def test_tokens_are_those_of_an_engine_without_speculation_and_islands(
    plain: Arm, speculating: dict[str, Arm], name: str
) -> None:
    assert speculating[name].tokens == plain.tokens
    assert speculating[name].overlap == (name != "tree")
    assert all(not answer.steps for answers in plain.answers.values() for answer in answers)


@EVERY
def test_slots_are_allocated_ahead_and_several_tokens_are_committed_a_step(
    speculating: dict[str, Arm], name: str
) -> None:
    arm, most = speculating[name], AHEAD.get(name, NODES)
    assert arm.ahead == (2 * most, most)
    assert arm.accepted("long") > 1
    if name in ("ngram", "tree"):
        assert arm.accepted("again") > 2
    if name in ("standalone", "eagle"):  # the draft is the target, without the prompt's first token; it knows the text
        assert arm.accepted("long") > 1.5
    if name == "eagle3":
        assert arm.accepted("long") > 2


def test_a_draft_with_kv_of_its_own_drafts_the_same_with_islands_and_without(
    model: Path, drafts: dict[str, tuple[str, str]], speculating: dict[str, Arm]
) -> None:
    """Its KV lies at the slots of the full pool, behind a tombstone too; islands hit more than stock, and elsewhere."""
    stock = apart(serve, model, "--speculative-algorithm", "EAGLE3", *BRANCHES, *drafts["eagle3"])
    assert speculating["eagle3"].steps == stock.steps
    assert speculating["eagle3"].tokens == stock.tokens
    assert speculating["eagle3"].cached("branch") > stock.cached("branch")


@EVERY
def test_islands_are_published_and_found(plain: Arm, speculating: dict[str, Arm], name: str) -> None:
    arm = speculating[name]
    assert arm.tally.islands["decode"] >= 2
    assert arm.tally.tombstoned > 0
    assert arm.tally.crossed >= 2  # hits over a tombstone
    assert arm.cached("hit") >= 150 - 2 * PAGE
    assert arm.cached("extension") >= 20 + 2 * INTERVAL
    assert arm.cached("branch") >= 20 + INTERVAL > plain.cached("branch")  # in the middle of what was generated
    assert arm.tally.violations == 0


@EVERY
def test_both_pools_come_back(plain: Arm, speculating: dict[str, Arm], name: str) -> None:
    assert speculating[name].lost == plain.lost == (0, 0, 0)


@EVERY
def test_verification_is_greedy_whatever_the_temperature(speculating: dict[str, Arm], name: str) -> None:
    assert len(speculating[name].hot) == 7
    assert speculating[name].hot == speculating[name].cold


# --- trees: what a node sees, against plain attention -------------------------------------------------------------


def test_a_node_sees_the_prefix_and_its_own_path() -> None:
    """Two requests of 5 and 9 tokens; nodes 0-1-3 and 0-2 of the first, a chain of the second."""
    forks = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]]).bool()
    chain = torch.ones(4, 4).tril().bool()
    masks = [torch.cat([torch.ones(4, length).bool(), tree], 1) for length, tree in ((5, forks), (9, chain))]
    spec = SimpleNamespace(draft_token_num=4, custom_mask=torch.cat([mask.flatten() for mask in masks]))
    trees = attention.Trees.of(SimpleNamespace(seq_lens=torch.tensor([5, 9]), spec_info=spec))
    assert trees.lengths == [6, 7, 7, 8, 10, 11, 12, 13]
    for row, length in enumerate(trees.lengths):
        seen = trees.place(torch.tensor([row]), torch.arange(length).unsqueeze(0))[0]
        assert seen.tolist() == masks[row // 4][row % 4].nonzero().flatten().tolist()


def test_a_branch_of_a_draft_sees_the_prefix_and_itself() -> None:
    """Two requests of 5 and 9 tokens, two branches with room for 3 drafts, two drafted; pages of 4 and of 1."""
    for page, begins in ((4, [5, 9, 9, 13]), (1, [5, 8, 9, 12])):
        branches = attention.Branches.of(torch.tensor([5, 9]), topk=2, depth=3, page=page, drafted=2)
        assert branches.lengths == [7, 7, 11, 11]
        for row, (length, begin) in enumerate(zip(branches.lengths, begins, strict=True)):
            seen = branches.place(torch.tensor([row]), torch.arange(length).unsqueeze(0))[0]
            assert seen.tolist() == [*range(length - 2), begin, begin + 1]


@pytest.fixture
def stand_in() -> None:
    speculation.stand_in()


@pytest.mark.usefixtures("stand_in")
def test_trees_are_built_from_what_was_drafted() -> None:
    """Candidates 0 and 1 follow the last token, 2 and 3 candidate 0, 4 and 5 candidate 1, 6 and 7 candidate 2, 8 and 9
    candidate 4. In the third request a parent was not picked, as happens when probabilities are equal.
    """
    parents = torch.tensor([[-1, 0, 1, 2, 4]]).repeat(3, 1)
    picked = torch.tensor([[0, 1, 2, 4, 6], [0, 2, 3, 6, 7], [0, 1, 3, 6, 7]])
    lengths, nodes = torch.tensor([5, 9, 7]), 6
    mask = torch.ones(int(lengths.sum()) * nodes + 3 * nodes * nodes, dtype=torch.bool)
    positions, index = torch.empty(3 * nodes, dtype=torch.long), torch.empty(3, nodes, dtype=torch.long)
    child, sibling = torch.full((3, nodes), -1), torch.full((3, nodes), -1)
    speculation.build_tree(parents, picked, lengths, mask, positions, index, child, sibling, 2, 3, nodes, None)
    assert child.tolist() == [[1, 3, 4, 5, -1, -1], [1, 2, 4, -1, -1, -1], [1, 3, -1, -1, -1, -1]]
    assert sibling.tolist() == [[-1, 2, -1, -1, -1, -1], [-1, -1, 3, -1, 5, -1], [-1, 2, 4, -1, 5, -1]]
    assert (positions.view(3, nodes) - lengths.unsqueeze(1)).tolist() == [
        *([0, 1, 1, 2, 2, 3], [0, 1, 2, 2, 3, 3], [0, 1, 1, 2, 1, 1])
    ]
    assert index.flatten().tolist() == list(range(3 * nodes))
    batch = SimpleNamespace(seq_lens=lengths, spec_info=SimpleNamespace(draft_token_num=nodes, custom_mask=mask))
    trees = attention.Trees.of(batch)
    assert trees.path[5, :4].tolist() == [0, 1, 3, 5]
    assert trees.lengths == (positions + 1).tolist()


@pytest.mark.usefixtures("stand_in")
def test_a_draft_of_one_step_gives_the_last_token_children_only() -> None:
    """SGLang then knows no parents at all."""
    child, sibling = torch.full((1, 4), -1), torch.full((1, 4), -1)
    out = torch.ones(4 * 9, dtype=torch.bool), torch.empty(4, dtype=torch.long), torch.empty(1, 4, dtype=torch.long)
    picked = torch.tensor([[0, 1, 2]])
    speculation.build_tree(torch.empty(1, 0), picked, torch.tensor([5]), *out, child, sibling, 4, 1, 4, None)
    assert child.tolist() == [[1, -1, -1, -1]]
    assert sibling.tolist() == [[-1, 2, 3, -1]]
