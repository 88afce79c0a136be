"""One run: SGLang's Scheduler object and its own overlap loop in this process, in virtual time.

Real: server arguments, pool sizes, allocators, radix cache, requests, admission, chunked prefill, retraction, overlap,
speculative allocation ahead, result processing. Not there: device, model, tokenizer, sockets (touchpoints.PACED). CPU
time is not charged to the clock. Ends the process that it runs in (`forks` starts one per run).
"""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path
from typing import Any

from sglang.srt.managers.io_struct import TokenizedGenerateReqInput
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.mem_cache.base_prefix_cache import EvictParams
from sglang.srt.plugins import load_plugins
from sglang.srt.plugins.hook_registry import HookRegistry, HookType
from sglang.srt.runtime_context import SpawnRanks, publish, spawn_world_rank
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.server_args import PortArgs, prepare_server_args

from island_engine import guards, touchpoints
from island_engine.bench.sim.clients import Ask, Clients, clients
from island_engine.bench.sim.recorder import Recorder, Sample
from island_engine.bench.sim.setting import SWITCHES, Setting
from island_engine.islands.cache import IslandRadixCache
from island_engine.paced import kernels, launch, standin, worker
from island_engine.paced.clock import VirtualClock

EVERYTHING = EvictParams(num_tokens=10**9, swa_num_tokens=10**9)


class Simulation:
    """Scheduler, clients and clock of one run."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.clients: Clients = clients(setting.workload, setting.seed)
        self.pace = worker.Pace(setting.engine, VirtualClock())
        self._install()
        self.scheduler: Any = _boot(setting)
        self.pools = self.scheduler.token_to_kv_pool_allocator
        self.recorder = Recorder(self.pools.size_swa)

    def run(self) -> dict[str, Any]:
        """Serve the workload; what Recorder reports, and what is known about the pools."""
        before = self._free()
        self.scheduler.run_event_loop()
        tree = self.scheduler.tree_cache
        for _ in range(3):  # a request's tail is evictable only after the leaf behind it
            tree.evict(EVERYTHING)
        return {
            **self.recorder.report(self.clients.outputs, self.clients.latencies),
            "simulated": True,
            "cache": type(tree).__name__,
            "full_tokens": self.pools.size_full,
            "swa_tokens": self.pools.size_swa,
            "prefilled": self.pace.prefilled,
            "recomputed_pct": round(100 * max(0.0, 1 - self.clients.inputs / self.pace.prefilled), 2),
            "steps": dict(self.pace.steps),
            "conserved": self._free() == before,
            "frontier_violations": tree.watch.found if type(tree) is IslandRadixCache else 0,
        }

    def _free(self) -> tuple[int, int]:
        return self.pools.full_available_size(), self.pools.swa_available_size()

    def _install(self) -> None:
        def receive(_receiver: Any) -> list[Any]:
            asked = self.clients.poll(self.pace.clock.now)
            if self.clients.finished:
                self.scheduler.gracefully_exit = True
            return [_request(ask) for ask in asked]

        def send(_sender: Any, output: Any, _received: Any = None) -> None:
            reasons = getattr(output, "finished_reasons", None)
            for name, reason in zip(output.rids, reasons, strict=True) if reasons else ():
                if reason is not None and name not in self.clients.done:
                    self.clients.end(name, self.pace.clock.now)

        def retracted(result: Any, *_: Any, **__: Any) -> None:
            self.recorder.retracted += len(result[0])

        def read(scheduler: Any, batch: Any, _result: Any) -> None:
            usage = scheduler.pool_stats_observer.get_pool_stats()
            self.recorder.add(
                Sample(
                    now=self.pace.clock.now,
                    running=len(scheduler.running_batch.reqs),
                    queued=len(scheduler.waiting_queue),
                    full=usage.full_token_usage,
                    swa=usage.swa_token_usage,
                    decode=batch.forward_mode.is_decode(),
                )
            )

        for touch, hook, kind in (
            (touchpoints.RECEIVE, receive, HookType.REPLACE),
            (touchpoints.SEND, send, HookType.REPLACE),
            (touchpoints.RETRACT, retracted, HookType.AFTER),
            (touchpoints.RESULT, read, HookType.BEFORE),
        ):
            HookRegistry.register(touch.target, hook, kind)
        worker.install(self.pace)  # last: of two BEFORE hooks the later one runs first, and it moves the clock
        kernels.install()


def _request(ask: Ask) -> TokenizedGenerateReqInput:
    """What the tokenizer process would send."""
    sampling = SamplingParams(max_new_tokens=ask.new, temperature=0, ignore_eos=True)
    sampling.normalize(None)
    return TokenizedGenerateReqInput(
        rid=ask.name,
        input_text=None,
        input_ids=ask.ids,
        input_embeds=None,
        mm_inputs=None,
        token_type_ids=None,
        sampling_params=sampling,
        return_logprob=False,
        logprob_start_len=-1,
        top_logprobs_num=0,
        token_ids_logprob=None,
        stream=False,
    )


def _boot(setting: Setting) -> Any:
    """The scheduler, as SGLang's scheduler process builds it."""
    load_plugins()
    guards.check_hooks()
    with tempfile.TemporaryDirectory() as folder:
        standin.write(Path(folder), setting.engine)
        arguments = prepare_server_args(
            [
                *setting.arguments(folder),
                *launch.arguments(setting.engine),
                *("--skip-tokenizer-init", "--skip-server-warmup", "--log-level", "error"),
            ]
        )
        ports = PortArgs.init_new(arguments)
        rank = spawn_world_rank(arguments, tp_rank=0, pp_rank=0)
        publish(arguments, role="scheduler", ranks=SpawnRanks(world_rank=rank, dp_rank=None, gpu_id=0))
        return Scheduler(arguments, ports)


def simulate(setting: Setting) -> dict[str, Any]:
    """Run one setting. This process can run no other afterwards: SGLang's state is global."""
    os.environ.update(SWITCHES[setting.arm].env)
    logging.disable(logging.WARNING)
    return Simulation(setting).run()
