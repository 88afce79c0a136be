"""SGLang's real allocator, radix cache, admission, result processing and retraction, step by step without a model.

`Rig` stands in for GPU and scheduler loop: it launches prefill chunks and decode steps in SGLang's order, with or
without overlap (a result is processed while the next step runs), with or without speculation. Caches come from the
plugin's factories, so that the product is measured, hooks and all. All sizes are in tokens.
"""

from __future__ import annotations

import random
import types
from array import array
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import torch
from sglang.srt.managers.schedule_batch import FINISH_ABORT, Req
from sglang.srt.managers.schedule_policy import AddReqResult, PrefillAdder
from sglang.srt.managers.scheduler_components.batch_result_processor import SchedulerBatchResultProcessor
from sglang.srt.managers.scheduler_components.new_token_ratio_tracker import NewTokenRatioTracker
from sglang.srt.mem_cache import common
from sglang.srt.mem_cache.allocation import alloc_for_decode, alloc_for_extend
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.sampling.sampling_params import SamplingParams

from island_engine.bench import batches
from island_engine.bench.batches import Launched
from island_engine.bench.kv import VOCABULARY, CorruptKvError, WrittenKv, token
from island_engine.bench.pools import Pools, Sizes

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["VOCABULARY", "CorruptKvError", "Launched", "Rig", "Sizes", "token"]

PATIENCE = 4  # steps without a launch or a result
MAX_PREFILL = 16384  # SGLang's --max-prefill-tokens


class Rig(Pools):
    """One engine. `contents`: write and check KV (`kv.WrittenKv`), which costs most of the time; `seed`: of how many
    drafted tokens are accepted. The rest as in Pools.
    """

    def __init__(
        self,
        cache_class: type = UnifiedRadixCache,
        sizes: Sizes | None = None,
        *,
        overlap: bool = False,
        draft: int = 0,
        bigram: bool = False,
        contents: bool = True,
        seed: int = 0,
    ) -> None:
        super().__init__(cache_class, sizes or Sizes(), overlap=overlap, draft=draft, bigram=bigram)
        self.overlap, self.draft = overlap, draft
        parts = dict.fromkeys(field.name for field in fields(SchedulerBatchResultProcessor))
        self.processor = SchedulerBatchResultProcessor(**parts | {"tree_cache": self.cache})
        self.ratio = NewTokenRatioTracker.from_config()
        self.rng = random.Random(seed)  # noqa: S311 - no secret
        self.kv = WrittenKv(self.alloc, self.rows, window=self.sizes.window) if contents else None
        self.idle = self.clock = self.retractions = self.swa_retractions = self.prefilled = self.recomputed = (
            self.decoded
        ) = 0
        self.waiting: list[Any] = []
        self.running: list[Any] = []
        self.finished: list[Any] = []
        self.chunked: Any = None
        self.pending: Launched | None = None
        self.seeds: dict[str, int] = {}

    # --- requests -------------------------------------------------------------------------------------------------

    def add(self, prompt: Sequence[int], new: int, seed: int = 1) -> Any:
        """Queue a request for `new` tokens."""
        sampling = SamplingParams(max_new_tokens=new, ignore_eos=True)
        sampling.normalize(None)
        req = Req(f"r{len(self.seeds)}", "", array("q", prompt), sampling)
        self.seeds[req.rid] = seed
        if self.kv:
            self.kv.expect(req, prompt, new + 2 * self.draft + 1, seed)
        self.waiting.append(req)
        return req

    def abort(self, req: Any) -> None:
        """The client hung up: a queued request leaves, a prompt in chunks gives its KV back once its chunk is through,
        a running request ends with its next result, as in SGLang.
        """
        if req in self.waiting:
            self.waiting.remove(req)
        elif req is self.chunked:
            self.settle()
            self.chunked = None
            req.to_finish = FINISH_ABORT()
            req.update_finish_state()
            common.release_kv_cache(req, self.cache, checkpoint=False)
        else:
            req.to_finish = FINISH_ABORT()

    def retract(self, req: Any) -> None:
        """Take a running request's KV back and queue it again, by SGLang's own ScheduleBatch.release_req."""
        self.settle()
        if req not in self.running:
            return
        batch = batches.bare(self, self.running, ForwardMode.DECODE)
        batch.release_req(self.running.index(req), len(self.running) - 1)
        self.running.remove(req)
        self.waiting.append(req)
        self.retractions += 1

    @staticmethod
    def ids(req: Any) -> list[int]:
        """Prompt and generation."""
        return [*req.origin_input_ids, *req.output_ids]

    def unaccounted(self) -> int:
        """SWA tokens in use that neither the tree nor a request answers for; between steps always 0."""
        reqs = [*self.running, *(self.pending.reqs if self.pending else []), self.chunked]
        return self.orphans([*{req.rid: req for req in reqs if req and req.kv.holds_kv}.values()])

    # --- steps ----------------------------------------------------------------------------------------------------

    def step(self) -> Launched | None:
        """Launch one batch, prefill first; process what is due. None: nothing could be launched."""
        self.clock += 1
        job = self._launch_prefill() or self._launch_decode()
        if job and not job.decode:  # SGLang merges a prefill into the running batch before its result is known
            self.running += [req for req in job.reqs if req is not job.middle]
        due, self.pending = (self.pending, job) if self.overlap else (job, None)
        self._process(due)
        self.idle = 0 if job or due else self.idle + 1
        return job

    def settle(self) -> None:
        """Process the step in flight."""
        due, self.pending = self.pending, None
        self._process(due)

    @property
    def stuck(self) -> bool:
        """Whether requests are there, and nothing has happened in the last steps."""
        return self.busy and self.idle >= PATIENCE

    @property
    def busy(self) -> bool:
        """Whether anything is left to do."""
        return bool(self.waiting or self.running or self.chunked or self.pending)

    def drain(self) -> None:
        """Everybody hangs up."""
        self.settle()
        for req in [*self.waiting, *([self.chunked] if self.chunked else []), *self.running]:
            self.abort(req)
        self.run()

    def run(self, limit: int = 20000) -> None:
        """Until nothing is left to do."""
        for _ in range(limit):
            if not self.busy:
                return
            self.step()
            if self.stuck:
                raise AssertionError(
                    f"stuck: {len(self.waiting)} waiting, {len(self.running)} running, free {self.free()}"
                )
        raise AssertionError(f"not done after {limit} steps")

    def _launch_prefill(self) -> Launched | None:
        if self.chunked is not None and self.chunked.extend_end > self.chunked.prefix_len:
            common.checkpoint_kv_cache(self.chunked, self.cache)
        reqs = self._admit()
        if not reqs:
            return None
        batch = batches.bare(self, reqs, ForwardMode.EXTEND)
        starts, ends = [req.prefix_len for req in reqs], [req.extend_end for req in reqs]
        batch.prefix_lens = starts
        batch.extend_lens = [end - start for start, end in zip(starts, ends, strict=True)]
        batch.extend_num_tokens = sum(batch.extend_lens)
        batch.seq_lens = batch.seq_lens_cpu = torch.tensor(ends)
        alloc_for_extend(batch)
        for req, start, end in zip(reqs, starts, ends, strict=True):
            self.prefilled += end - start
            self.recomputed += (end - start) * req.retracted_stain
            req.extend_batch_idx += 1
            req.is_retracted = False
            req.kv.kv_committed_len = req.kv.kv_allocated_len = end
            if self.kv:
                self.kv.read(req, start, everything=True)
                self.kv.write(req, start, end)
        return Launched(batch, decode=False, middle=self.chunked)

    def _admit(self) -> list[Any]:
        if not self.waiting and self.chunked is None:
            return []
        running = types.SimpleNamespace(reqs=self.running, batch_size=lambda: len(self.running))
        chunk = self.sizes.chunk
        adder = PrefillAdder(
            self.sizes.page,
            self.cache,
            self.alloc,
            running,
            self.ratio.current,
            max(chunk, MAX_PREFILL),
            chunk,
            waiting_queue_len=len(self.waiting),
        )
        if self.chunked is not None:
            self.chunked.init_next_round_input()
            self.chunked = adder.add_chunked_req(self.chunked)
        for req in self.waiting:
            if adder.budget_state() == AddReqResult.OTHER or len(adder.can_run_list) >= self.rows.available_size():
                break
            req.init_next_round_input(self.cache)
            going = adder.add_one_req(req, has_chunked_req=self.chunked is not None, truncation_align_size=None)
            if going != AddReqResult.CONTINUE:
                break
        reqs: list[Any] = adder.can_run_list
        self.waiting = [req for req in self.waiting if req not in reqs]
        if reqs:
            self.chunked = adder.new_chunked_req or self.chunked
            if self.chunked is not None:
                self.chunked.inflight_middle_chunks += 1
        return reqs

    def _launch_decode(self) -> Launched | None:
        inflight = self.pending.reqs if self.pending else []
        ending = [req for req in self.running if req in inflight and req.next_output_finishes_by_length()]
        self.running = [req for req in self.running if req not in ending]
        if not self.running:
            return None
        batch = batches.bare(self, self.running, ForwardMode.DECODE)
        if batch.check_decode_mem():
            self.ratio.decay_step()
        elif ending:
            return None  # they give their KV back in a moment: nobody is retracted
        else:
            self._retract(batch)
        if not batch.reqs:
            return None
        self.decoded += len(batch.reqs)
        return Launched(batch, decode=True, accepted=self._verify(batch) if self.draft else self._decode(batch))

    def _retract(self, batch: Any) -> None:
        swa_binds = self.alloc.swa_available_size() < self.alloc.full_available_size()
        retracted, self.ratio.current, aborted = batch.retract_decode()
        self.retractions += len(retracted)
        self.swa_retractions += len(retracted) * swa_binds
        self.waiting += retracted
        self.finished += aborted
        self.running = list(batch.reqs)

    def _decode(self, batch: Any) -> dict[str, int]:
        batch.seq_lens = batch.seq_lens_cpu = torch.tensor([req.kv.kv_committed_len for req in batch.reqs])
        alloc_for_decode(batch, token_per_req=1)
        for req in batch.reqs:
            req.decode_batch_idx += 1
            if self.kv:
                position = req.kv.kv_committed_len - 1
                self.kv.read(req, position, everything=self.clock % 16 == 0)
                self.kv.write(req, position, position + 1)
        return {req.rid: 1 for req in batch.reqs}

    def _verify(self, batch: Any) -> dict[str, int]:
        """A verify step: `draft` tokens are computed, some are accepted; slots are allocated ahead of the commit."""
        batches.allocate_ahead(batch, self.sizes.page)
        accepted = {}
        for req in batch.reqs:
            req.decode_batch_idx += 1
            accepted[req.rid] = count = self.rng.randint(1, self.draft)
            if self.kv:
                start = req.kv.kv_committed_len + (self.pending.accepted.get(req.rid, 0) if self.pending else 0)
                self.kv.read(req, start, everything=self.clock % 16 == 0)
                self.kv.write(req, start, start + self.draft, accepted=start + count)
        return accepted

    # --- results --------------------------------------------------------------------------------------------------

    def _process(self, job: Launched | None) -> None:
        if job is None:
            return
        self.alloc.free_group_begin()
        for index, req in enumerate(job.reqs):
            if req.inflight_middle_chunks > 0 and not job.decode:
                req.inflight_middle_chunks -= 1
            elif not (req.finished() or req.is_retracted):
                self._commit(job, index, req)
        self.alloc.free_group_end()
        self.running = [req for req in self.running if not req.finished()]

    def _commit(self, job: Launched, index: int, req: Any) -> None:
        count = job.accepted.get(req.rid, 1)
        done = len(req.output_ids)
        req.output_ids.extend(array("q", [token(self.seeds[req.rid], done + ahead) for ahead in range(count)]))
        if job.decode and self.draft:
            req.kv.kv_committed_len += count
        req.update_finish_state(count)
        if job.decode:
            result = types.SimpleNamespace(num_correct_drafts_per_req_cpu=None)
            self.processor._handle_finish_state_updated_req(req, job.batch, result, index, _NOTHING)  # noqa: SLF001
        elif req.finished():
            common.release_kv_cache(req, self.cache, checkpoint=True)
        else:
            common.checkpoint_kv_cache(req, self.cache)
        if req.finished():
            self.finished.append(req)


_NOTHING = types.SimpleNamespace(customized_info=None)
