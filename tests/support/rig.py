"""SGLang's real allocator, radix cache, admission and requests, driven step by step without a model.

`Rig` stands in for scheduler and GPU: it launches prefill chunks and decode steps in SGLang's order, with or without
overlap (a result is processed one step late), and writes a value per token and position where a kernel would write KV.
Before anything is computed it reads the KV that attention would read, so a slot that was freed too early is seen as an
unmapped or overwritten value. All sizes are in tokens.
"""

from __future__ import annotations

import types
from array import array
from dataclasses import dataclass
from typing import Any

import torch
from sglang.srt.managers.schedule_batch import FINISH_LENGTH, Req, ScheduleBatch
from sglang.srt.managers.schedule_policy import AddReqResult, PrefillAdder
from sglang.srt.mem_cache import common
from sglang.srt.mem_cache.allocation import alloc_for_decode, alloc_for_extend
from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import EvictParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.mem_cache.unified_cache.components import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

SWA = ComponentType.SWA
EVERYTHING = EvictParams(num_tokens=10**9, swa_num_tokens=10**9)
VOCABULARY = 1 << 20


class Tally:
    """What a cache reports, as plain sums (the interface of island_engine.metrics.Silent)."""

    def __init__(self) -> None:
        self.islands = {"prefill": 0, "decode": 0}
        self.hits = {"running": 0, "finished": 0}
        self.tombstoned = self.swa_freed = self.noops = self.violations = self.crossed = self.live = 0
        self.holds: list[int] = []

    def published(self, phase: str, *, tombstoned: int) -> None:
        self.islands[phase] += 1
        self.tombstoned += tombstoned

    def freed(self, tokens: int) -> None:
        self.swa_freed += tokens

    def hit(self, tokens: int, *, running: bool, crossed: bool) -> None:
        self.hits["running" if running else "finished"] += tokens
        self.crossed += crossed

    def noop(self, tokens: int) -> None:
        self.noops += tokens

    def violation(self) -> None:
        self.violations += 1

    def held(self, holds: list[int], *, live: int) -> None:
        self.holds, self.live = holds, live


@dataclass
class Sizes:
    """Pool and window sizes; SWA pool large enough unless a test wants pressure."""

    page: int = 16
    window: int = 64
    chunk: int = 256
    full: int = 16384
    swa: int = 4096
    rows: int = 32
    context: int = 4096


@dataclass
class Launched:
    """A step whose result was not processed. `cells`, written by decode: request, position, full and SWA slot."""

    reqs: list[Any]
    decode: bool
    middle: Any = None  # the request whose prompt goes on in a later chunk
    cells: list[tuple[Any, int, torch.Tensor, torch.Tensor]] | None = None


class CorruptKvError(AssertionError):
    """Attention would have read a slot that was freed, or given to somebody else."""


def token(seed: int, index: int) -> int:
    """The generation of a request is a function of its seed, so that equal requests generate equal tokens."""
    return (seed * 7919 + index * 104729) % VOCABULARY


class Rig:
    """One engine. `cache.interval` decides about decode islands when the cache has it."""

    def __init__(self, cache_class: type = UnifiedRadixCache, sizes: Sizes | None = None, *, overlap: bool = False):
        self.sizes = size = sizes or Sizes()
        set_global_server_args_for_scheduler(
            ServerArgs(
                model_path="dummy",
                page_size=size.page,
                device="cpu",
                attention_backend="torch_native",
                chunked_prefill_size=size.chunk,
                disable_overlap_schedule=True,
            )
        )
        shape = {"page_size": size.page, "dtype": torch.bfloat16, "device": "cpu"}
        pool = SWAKVPool(
            size=size.full,
            size_swa=size.swa,
            head_num=1,
            head_dim=8,
            swa_attention_layer_ids=[0],
            full_attention_layer_ids=[1],
            **shape,
        )
        self.alloc = SWATokenToKVPoolAllocator(
            size=size.full, size_swa=size.swa, kvcache=pool, need_sort=False, **shape
        )
        self.rows = ReqToTokenPool(
            size=size.rows, max_context_len=size.context, device="cpu", enable_memory_saver=False
        )
        self.cache: Any = cache_class(
            CacheInitParams(
                disable=False,
                req_to_token_pool=self.rows,
                token_to_kv_pool_allocator=self.alloc,
                page_size=size.page,
                sliding_window_size=size.window - 1,  # SGLang does not count the token that reads
                chunked_prefill_size=size.chunk,
                tree_components=(ComponentType.FULL, SWA),
            )
        )
        self.tally = self.cache.metrics = Tally()
        self.overlap, self.clock, self.retractions = overlap, 0, 0
        self.waiting: list[Any] = []
        self.running: list[Any] = []
        self.finished: list[Any] = []
        self.chunked: Any = None
        self.pending: Launched | None = None
        self.seeds: dict[str, int] = {}
        self.full_kv = torch.zeros(size.full + size.page + 1, dtype=torch.int64)
        self.swa_kv = torch.zeros(size.swa + size.page + 1, dtype=torch.int64)
        self.baseline = self.free()

    # --- requests -------------------------------------------------------------------------------------------------

    def add(self, prompt: list[int], new: int, seed: int = 1) -> Any:
        """Queue a request."""
        sampling = SamplingParams(max_new_tokens=new, ignore_eos=True)
        sampling.normalize(None)
        req = Req(f"r{len(self.seeds)}", "", array("q", prompt), sampling)
        self.seeds[req.rid] = seed
        self.waiting.append(req)
        return req

    def abort(self, req: Any) -> None:
        """Take a running request out, between steps, without a final insert."""
        self.settle()
        if req in self.running:
            self.running.remove(req)
            self.release(req, checkpoint=False)

    def retract(self, req: Any) -> None:
        """Give a running request's KV back and queue it again."""
        self.running.remove(req)
        self.release(req, checkpoint=False)
        req.reset_for_retract()
        self.waiting.insert(0, req)
        self.retractions += 1

    def release(self, req: Any, *, checkpoint: bool) -> None:
        common.release_kv_cache(req, self.cache, checkpoint=checkpoint)

    # --- steps ----------------------------------------------------------------------------------------------------

    def step(self) -> Launched | None:
        """Launch one batch, prefill first; process what is due."""
        self.clock += 1
        job = self._launch_prefill() or (self._launch_decode() if self.running else None)
        due, self.pending = (self.pending, job) if self.overlap else (job, None)
        self._process(due)
        if self.overlap and job is not None and job.cells:  # the token that this step reads is known only now
            self._write_cells(job.cells)
        return job

    def settle(self) -> None:
        """Process the step in flight."""
        due, self.pending = self.pending, None
        self._process(due)

    def run(self, limit: int = 20000) -> None:
        """Until nothing is left to do."""
        idle = 0
        for _ in range(limit):
            if not (self.waiting or self.running or self.chunked or self.pending):
                return
            idle = 0 if self.step() or self.pending else idle + 1
            assert idle < 5, f"stuck: {len(self.waiting)} waiting, {len(self.running)} running, free {self.free()}"
        raise AssertionError(f"not done after {limit} steps")

    def _launch_prefill(self) -> Launched | None:
        if self.chunked is not None and self.chunked.extend_end > self.chunked.prefix_len:
            common.checkpoint_kv_cache(self.chunked, self.cache)
        if not self.waiting and self.chunked is None:
            return None
        running = types.SimpleNamespace(reqs=self.running, batch_size=lambda: len(self.running))
        chunk = self.sizes.chunk
        adder = PrefillAdder(self.sizes.page, self.cache, self.alloc, running, 0.7, chunk, chunk)
        if self.chunked is not None:
            self.chunked.init_next_round_input()
            self.chunked = adder.add_chunked_req(self.chunked)
        for req in list(self.waiting):
            req.init_next_round_input(self.cache)
            going = adder.add_one_req(req, has_chunked_req=self.chunked is not None, truncation_align_size=None)
            if going != AddReqResult.CONTINUE:
                break
        reqs = adder.can_run_list
        if not reqs:
            return None
        self.waiting = [req for req in self.waiting if req not in reqs]
        if adder.new_chunked_req is not None:
            self.chunked = adder.new_chunked_req
        if self.chunked is not None:
            self.chunked.inflight_middle_chunks += 1
        batch = self._batch(reqs, ForwardMode.EXTEND)
        starts, ends = [req.prefix_len for req in reqs], [req.extend_end for req in reqs]
        batch.prefix_lens = starts
        batch.extend_lens = [end - start for start, end in zip(starts, ends, strict=True)]
        batch.extend_num_tokens = sum(batch.extend_lens)
        batch.seq_lens = batch.seq_lens_cpu = torch.tensor(ends)
        alloc_for_extend(batch)
        for req, start, end in zip(reqs, starts, ends, strict=True):
            req.extend_batch_idx += 1
            req.is_retracted = False
            req.kv.kv_committed_len = req.kv.kv_allocated_len = end
            self.read(req, start)
            self.write(req, start, end)
        return Launched(reqs, decode=False, middle=self.chunked)

    def _launch_decode(self) -> Launched | None:
        inflight = self.pending.reqs if self.pending and self.pending.decode else []

        def lengths() -> list[int]:
            return [req.seqlen - 1 + (req in inflight) for req in self.running]

        def need() -> int:
            return sum(self.sizes.page for length in lengths() if length % self.sizes.page == 0)

        common.evict_from_tree_cache(self.cache, need())
        while need() > min(self.alloc.full_available_size(), self.alloc.swa_available_size()):
            self.retract(self.running[-1])
        if not self.running:
            return None
        reqs = list(self.running)
        batch = self._batch(reqs, ForwardMode.DECODE)
        batch.req_pool_indices = batch.req_pool_indices_cpu = torch.tensor([req.kv.req_pool_idx for req in reqs])
        batch.seq_lens = batch.seq_lens_cpu = torch.tensor(lengths())
        alloc_for_decode(batch, token_per_req=1)
        cells = []
        for req in reqs:
            req.decode_batch_idx += 1
            position = req.kv.kv_committed_len - 1
            known = min(position, len(self.ids(req)) - int(self.overlap))
            self.read(req, known, first=position - self.sizes.window + 1)
            slot = self.row(req)[position : position + 1].long()
            cells.append((req, position, slot, self.alloc.full_to_swa_index_mapping[slot]))
        if not self.overlap:
            self._write_cells(cells)
        return Launched(reqs, decode=True, cells=cells)

    def _batch(self, reqs: list[Any], mode: ForwardMode) -> ScheduleBatch:
        batch = object.__new__(ScheduleBatch)
        batch.reqs = reqs
        batch.req_to_token_pool, batch.token_to_kv_pool_allocator, batch.tree_cache = self.rows, self.alloc, self.cache
        batch.device, batch.forward_mode, batch.forward_iter = "cpu", mode, self.clock
        batch.model_config = types.SimpleNamespace(is_encoder_decoder=False, vocab_size=VOCABULARY)
        batch.enable_overlap, batch.hisparse_coordinator = False, None
        batch.spec_algorithm = SpeculativeAlgorithm.NONE
        batch.is_dllm = lambda: False
        return batch

    def _process(self, job: Launched | None) -> None:
        if job is None:
            return
        if job.decode:
            self._process_decode(job.reqs)
            return
        for req in job.reqs:
            if req.inflight_middle_chunks > 0:
                req.inflight_middle_chunks -= 1
            else:
                self._generate(req)
                common.checkpoint_kv_cache(req, self.cache)
        self.running += [req for req in job.reqs if req is not job.middle]

    def _process_decode(self, reqs: list[Any]) -> None:
        self.alloc.free_group_begin()
        for req in reqs:
            if req.is_retracted or not req.kv.holds_kv or req.finished():
                continue
            self._generate(req)
            if len(req.output_ids) >= req.sampling_params.max_new_tokens:
                req.finished_reason = FINISH_LENGTH(length=len(req.output_ids))
                req.finished_len = len(req.output_ids)
                self.release(req, checkpoint=True)
                self.finished.append(req)
            elif hasattr(self.cache, "decode_island"):
                self.cache.decode_island(req)
        self.alloc.free_group_end()
        self.running = [req for req in self.running if not req.finished()]

    def _generate(self, req: Any) -> None:
        req.output_ids.append(token(self.seeds[req.rid], len(req.output_ids)))

    # --- the KV that kernels write and read -----------------------------------------------------------------------

    def row(self, req: Any) -> torch.Tensor:
        return self.rows.req_to_token[req.kv.req_pool_idx]

    @staticmethod
    def ids(req: Any) -> list[int]:
        return [*req.origin_input_ids, *req.output_ids]

    def _values(self, req: Any, start: int, end: int) -> torch.Tensor:
        ids = torch.tensor(self.ids(req)[start:end], dtype=torch.int64)
        return ids * 1000003 + torch.arange(start, end) + 7

    def swa_slots(self, req: Any, start: int, end: int) -> torch.Tensor:
        """SWA slots of positions [start, end); 0 where there is none."""
        return self.alloc.full_to_swa_index_mapping[self.row(req)[start:end].long()]

    def write(self, req: Any, start: int, end: int) -> None:
        values, swa = self._values(req, start, end), self.swa_slots(req, start, end)
        assert bool((swa > 0).all()), "a token that is being computed has no SWA slot"
        self.full_kv[self.row(req)[start:end].long()] = values
        self.swa_kv[swa] = values

    def _write_cells(self, cells: list[tuple[Any, int, torch.Tensor, torch.Tensor]]) -> None:
        """In the order of launches, to the slots known at the launch, also for a request that finished meanwhile."""
        for req, position, slot, swa in cells:
            value = self._values(req, position, position + 1)
            self.full_kv[slot] = value
            self.swa_kv[swa] = value

    def read(self, req: Any, end: int, first: int | None = None) -> None:
        """What the token at `end` attends to: all full-attention KV before it, and the SWA KV of its window."""
        start = max(0, end - self.sizes.window + 1 if first is None else first)
        values, swa = self._values(req, start, end), self.swa_slots(req, start, end)
        if not bool((swa > 0).all()):
            raise CorruptKvError(f"{req.rid}: {int((swa <= 0).sum())} SWA slots of [{start}, {end}) were freed")
        if not torch.equal(self.swa_kv[swa], values):
            raise CorruptKvError(f"{req.rid}: SWA KV of [{start}, {end}) was overwritten")
        everything = first is None or self.clock % 16 == 0  # a decode step's full KV is checked now and then
        if everything and not torch.equal(self.full_kv[self.row(req)[:end].long()], self._values(req, 0, end)):
            raise CorruptKvError(f"{req.rid}: full KV before {end} was overwritten")

    # --- books ----------------------------------------------------------------------------------------------------

    def free(self) -> tuple[int, int]:
        """Free tokens of the full and of the SWA pool."""
        return self.alloc.full_available_size(), self.alloc.swa_available_size()

    def used_swa(self) -> int:
        return int(self.sizes.swa - self.alloc.swa_available_size())

    def pinned_swa(self) -> int:
        """SWA tokens that eviction cannot get back: locked in the tree, or owned by requests."""
        return self.used_swa() - int(self.cache.swa_evictable_size())

    def tombstones(self, ids: list[int]) -> list[tuple[int, int]]:
        """Ranges of this token path whose SWA slots are gone while full KV is cached."""
        return list(self.cache.tree_core.swa_tombstone_ranges(RadixKey(array("q", ids), None), 0, len(ids)))

    def evict_all(self) -> None:
        for _ in range(3):
            self.cache.evict(EVERYTHING)

    def leaks(self) -> list[str]:
        """What is wrong with the pools when nothing runs and everything was evicted; empty when all is back."""
        self.evict_all()
        wrong = []
        if self.free() != self.baseline:
            wrong.append(f"free (full, swa) {self.free()} instead of {self.baseline}")
        for name, pool in (("full", self.alloc.full_attn_allocator), ("swa", self.alloc.swa_attn_allocator)):
            pages = pool.get_all_free_pages()
            if len(torch.unique(pages)) != len(pages):
                wrong.append(f"a {name} page is free twice")
        if bool((self.alloc.full_to_swa_index_mapping[:-1] != 0).any()):
            wrong.append("a full slot still maps to an SWA slot")
        if self.rows.available_size() != self.sizes.rows:
            wrong.append(f"{self.sizes.rows - self.rows.available_size()} rows of requests were not given back")
        return wrong
