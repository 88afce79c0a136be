"""SGLang's real scheduler with its model in this process, driven by calls: no server, no socket is read.

One per process, because SGLang's parallel state and configuration are global: `apart` runs one in a fork.
"""

from __future__ import annotations

import gc
import multiprocessing
import traceback
import uuid
import warnings
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch
from sglang.srt.managers.io_struct import TokenizedGenerateReqInput
from sglang.srt.managers.scheduler import Scheduler, SpawnRanks, publish
from sglang.srt.mem_cache.base_prefix_cache import EvictParams
from sglang.srt.plugins import load_plugins
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.server_args import PortArgs, prepare_server_args

from island_engine import tiny_model

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


During = Callable[[], "Sequence[Any]"]


@dataclass(frozen=True)
class Answer:
    """What one request got."""

    tokens: list[int]
    logprobs: list[list[float]]  # of the whole vocabulary, for each token
    cached: int
    steps: int  # verify steps, with speculation
    retractions: int


class Engine:
    """`vocabulary`: how many logprobs a token comes with; 0: none at all. `during` is called before each step of the
    scheduler's loop and may return control requests, which the scheduler then handles as if they had been received.
    """

    def __init__(self, model: Path, *flags: str, vocabulary: int = 512) -> None:
        load_plugins()
        args = prepare_server_args(["--model-path", str(model), "--device", "cpu", *flags])
        publish(args, role="scheduler", ranks=SpawnRanks(world_rank=0, dp_rank=None, gpu_id=0))
        self.scheduler = scheduler = Scheduler(args, PortArgs.init_new(args))
        scheduler.idle_sleeper = None
        scheduler.ingest_requests = self._ingest
        self.vocabulary = vocabulary
        self.arriving: list[Any] = []
        self.during: During | None = None
        self.requests: dict[str, Any] = {}
        self.replies: list[Any] = []  # to control requests
        scheduler.send_control_output = lambda reply, _request: self.replies.append(reply)
        create = scheduler._create_generation_req

        def keep(received: Any, *args: Any, **kwargs: Any) -> Any:
            self.requests[received.rid] = create(received, *args, **kwargs)
            return self.requests[received.rid]

        scheduler._create_generation_req = keep
        self.baseline = self.free()
        gc.freeze()  # every flush collects garbage; what is here stays

    def run(
        self,
        prompts: Sequence[list[int]],
        new: int,
        during: During | None = None,
        priorities: Sequence[int] | None = None,
    ) -> list[Answer]:
        """All at once, greedily, `new` tokens each."""
        asked = [
            self.request(ids, new, priority)
            for ids, priority in zip(prompts, priorities or [None] * len(prompts), strict=True)
        ]
        self.arriving += asked
        self.during = during
        self.scheduler.gracefully_exit = False
        self.scheduler.run_event_loop()
        return [self.answer(request) for request in asked]

    def request(
        self, ids: list[int], new: int, priority: int | None = None, temperature: float = 0
    ) -> TokenizedGenerateReqInput:
        """As the tokenizer would send it."""
        sampling = SamplingParams(temperature=temperature, max_new_tokens=new, ignore_eos=True)
        sampling.normalize(None)
        return TokenizedGenerateReqInput(
            rid=uuid.uuid4().hex,
            input_text="",
            input_ids=array("q", ids),
            input_embeds=None,
            mm_inputs=None,
            token_type_ids=None,
            sampling_params=sampling,
            return_logprob=self.vocabulary > 0,
            logprob_start_len=-1,
            top_logprobs_num=self.vocabulary,
            token_ids_logprob=None,
            stream=False,
            priority=priority,
        )

    def answer(self, request: TokenizedGenerateReqInput) -> Answer:
        """To a request that is over."""
        req = self.requests.pop(request.rid)
        return Answer(
            list(req.output_ids[: request.sampling_params.max_new_tokens]),
            by_token(req.logprob) if self.vocabulary else [],
            req.cached_tokens,
            req.spec_verify_ct,
            req.retraction_count,
        )

    def control(self, *requests: Any) -> list[Any]:
        """Have the scheduler handle these now; what it replies."""
        self.replies.clear()
        self.scheduler.process_input_requests(list(requests))
        return list(self.replies)

    def flush(self) -> None:
        """Forget every prefix."""
        assert self.scheduler.flush_cache()

    def free(self) -> tuple[int, int, int]:
        """Free tokens of the full and of the SWA pool, and free rows."""
        pool = self.scheduler.token_to_kv_pool_allocator
        rows = self.scheduler.req_to_token_pool
        return pool.full_available_size(), pool.swa_available_size(), rows.available_size()

    def lost(self) -> tuple[int, int, int]:
        """What is missing of the pools when nothing runs and the tree is empty; all zero when everything came back."""
        for _ in range(3):
            self.scheduler.tree_cache.evict(EvictParams(num_tokens=10**9, swa_num_tokens=10**9))
        full, swa, rows = (was - now for was, now in zip(self.baseline, self.free(), strict=True))
        return full, swa, rows

    def _ingest(self, stop_at_pause: bool = False) -> list[Any]:
        arriving, self.arriving = self.arriving, []
        if self.during is not None:
            arriving += self.during()
        self.scheduler.process_input_requests(arriving)
        if not arriving and self.scheduler.last_batch is None and self.scheduler.is_fully_idle():
            self.scheduler.gracefully_exit = True
        return arriving


def by_token(logprob: Any) -> list[list[float]]:
    """SGLang sorts logprobs; equal ones may then stand in any order."""
    pairs = zip(logprob.output_top_logprobs_val, logprob.output_top_logprobs_idx, strict=True)
    return [[value for _, value in sorted(zip(ids, values, strict=True))] for values, ids in pairs]


def tiny(folder: Path, window: int, seed: int = tiny_model.SEED) -> Path:
    """The tiny model with another window, made in this folder; other weights by another seed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny_model, "config", partial(tiny_model.config, window=window))
        patch.setattr(tiny_model, "SEED", seed)
        tiny_model.make(folder)
    return folder


def parked(scheduler: Any, batch: Any) -> bool:
    """Whether a prompt waits between its chunks while this batch runs."""
    going = scheduler.chunked_req
    return going is not None and going not in batch.reqs


def apart(work: Callable[..., Any], *args: Any) -> Any:
    """`work(*args)` in a fork of this process."""
    ours, theirs = multiprocessing.Pipe(duplex=False)

    def child() -> None:
        warnings.simplefilter("ignore")  # what SGLang does with numpy and torch is not tested here
        torch.set_num_threads(1)  # makes the pool anew that a fork loses; two loading threads at once may find none
        try:
            theirs.send((work(*args), None))
        except Exception:  # noqa: BLE001 - the test that asked shows it
            theirs.send((None, traceback.format_exc()))

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    theirs.close()
    try:
        result, failure = ours.recv()
    finally:
        process.kill()
        process.join()
    assert failure is None, failure
    return result
