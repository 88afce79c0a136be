"""The stub in place of the model: it says how long a step takes and returns dummy tokens.

Block speculation enters by SGLang's official plugin API, as `--speculative-algorithm ISLAND_BLOCK`: allocation ahead of
the commit, the relay to the next step and the commit of several tokens a step are SGLang's own. Without speculation the
forward pass of the target worker is replaced.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.plugins.hook_registry import HookRegistry, HookType
from sglang.srt.speculative.base_spec_worker import BaseSpecWorker
from sglang.srt.speculative.eagle_info import EagleDraftInput
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.speculative.spec_registry import CustomSpecAlgo

from island_engine.paced.accept import AcceptLengths
from island_engine.paced.launch import ALGORITHM
from island_engine.paced.standin import DUMMY
from island_engine.touchpoints import FORWARD, RESULT

if TYPE_CHECKING:
    from island_engine.paced.clock import VirtualClock
    from island_engine.paced.profiles import Profile


@dataclass
class Pace:
    """One engine's clock and model, and what its steps were."""

    profile: Profile
    clock: VirtualClock
    prefilled: int = 0  # tokens
    steps: dict[str, int] = field(default_factory=lambda: {"prefill": 0, "decode": 0})

    def __post_init__(self) -> None:
        self.accept = AcceptLengths(self.profile.block, self.profile.accept)

    def launch(self, batch: Any) -> tuple[float, list[int]]:
        """When the step of this batch will end, and how many tokens it commits of each request."""
        if batch.forward_mode.is_extend():
            work = list(zip(batch.extend_lens, batch.prefix_lens, strict=True))
            self.steps["prefill"] += 1
            self.prefilled += sum(new for new, _ in work)
            return self.clock.launch(self.profile.roofline.prefill(work)), [1] * len(work)
        seconds = self.profile.roofline.decode(batch.seq_lens.tolist(), self.profile.block)
        self.steps["decode"] += 1
        return self.clock.launch(seconds), [self.accept.next(req.rid) for req in batch.reqs]

    def read(self, batch: Any, result: Any) -> None:
        """The scheduler reads a result: it waits until the step has ended."""
        self.clock.reach(result.paced_until)
        for req in batch.reqs:
            if req.finished():  # its last step was one before
                self.accept.forget(req.rid)


class _Current:
    """SGLang builds the worker itself, from a class: the pace is handed over here."""

    pace: Pace


class BlockAlgorithm(CustomSpecAlgo):
    """The base class lacks what the scheduler calls (scheduler.py:1681, overlap_utils.py:378, scheduler.py:1540)."""

    create_future_map = SpeculativeAlgorithm.create_future_map

    def need_topk(self) -> bool:
        """A chain, not a tree."""
        return False

    def carries_draft_hidden_states(self) -> bool:
        """There is no draft model."""
        return False

    def has_draft_kv(self) -> bool:
        """Draft KV is counted in the bytes of a token (sizing.Geometry), not in a pool of its own."""
        return False


class BlockWorker(BaseSpecWorker):
    """The worker of ISLAND_BLOCK. What it does not override, a worker without a draft model does not need."""

    def __init__(self, server_args: Any, gpu_id: int, nccl_port: int, target_worker: Any) -> None:
        super().__init__()
        self._target_worker = target_worker
        self.model_runner = target_worker.model_runner

    @property
    def draft_worker(self) -> None:
        """None."""

    def alloc_memory_pool(self, **_: Any) -> None:
        """No draft pool."""

    def init_hicache_draft_plan(self) -> None:
        """No draft pool."""

    def init_attention_backends(self) -> None:
        """No draft model."""

    def init_cuda_graphs(self, *_: Any, **__: Any) -> None:
        """Nothing to capture."""

    def prewarm_sampling(self) -> None:
        """Nothing is sampled."""

    def on_verify_complete_cpu(self, num_correct_drafts_per_req: Any, batch_size: int = 0) -> None:
        """Nothing adapts."""

    def forward_batch_generation(self, batch: Any, on_publish: Any = None, **_: Any) -> GenerationBatchResult:
        """A prefill chunk, or one verify step of a block; [requests * block] dummy tokens."""
        pace = _Current.pace
        end, committed = pace.launch(batch)
        rows, block = len(batch.reqs), pace.profile.block
        decode = not batch.forward_mode.is_extend()
        accepted = torch.tensor(committed, dtype=torch.int32)
        lengths = batch.seq_lens + accepted if decode else batch.seq_lens.clone()
        if on_publish is not None:
            on_publish(lengths)
        none = torch.zeros((rows, 1))
        dummies = torch.full((rows,), DUMMY, dtype=torch.int64)
        result = GenerationBatchResult(
            next_token_ids=dummies.repeat(block) if decode else dummies,
            accept_lens=accepted,
            new_seq_lens=lengths,
            speculative_num_draft_tokens=block,
            can_run_cuda_graph=True,
            next_draft_input=EagleDraftInput(topk_p=none, topk_index=none, bonus_tokens=dummies),
        )
        result.paced_until = end
        return result


def forward(_worker: Any, batch: Any, *_: Any, **__: Any) -> GenerationBatchResult:
    """REPLACE hook: one token per request."""
    end, committed = _Current.pace.launch(batch)
    result = GenerationBatchResult(
        next_token_ids=torch.full((len(committed),), DUMMY, dtype=torch.int64), can_run_cuda_graph=True
    )
    result.paced_until = end
    return result


def before_result(_scheduler: Any, batch: Any, result: Any) -> None:
    """BEFORE hook: time passes where the scheduler would wait for the device."""
    if hasattr(result, "paced_until"):  # an idle batch has none
        _Current.pace.read(batch, result)


def install(pace: Pace) -> None:
    """Register the stub; SGLang applies it when it loads its plugins."""
    _Current.pace = pace
    HookRegistry.register(FORWARD.target, forward, HookType.REPLACE)
    HookRegistry.register(RESULT.target, before_result, HookType.BEFORE)

    @SpeculativeAlgorithm.register(ALGORITHM, supports_overlap=True, spec_class=BlockAlgorithm)
    def _factory(_server_args: Any) -> type:
        return BlockWorker
