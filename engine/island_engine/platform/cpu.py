"""The plain-CPU platform: every fused op runs its native form, attention is ours (`platform.attention`)."""

from __future__ import annotations

import gc
import os
from typing import Any

import psutil
import torch
from sglang.srt.platforms.device_mixin import PlatformEnum
from sglang.srt.platforms.interface import PlatformCapabilities, SRTPlatform

from island_engine.platform import BACKEND  # not attention: SGLang resolves the platform while it is half imported


class CpuPlatform(SRTPlatform):
    """An out-of-tree platform (platforms/interface.py); OOT also keeps SGLang from importing vLLM's kernels."""

    _enum = PlatformEnum.OOT
    device_name = "cpu"
    device_type = "cpu"
    capabilities = PlatformCapabilities()

    def init_backend(self) -> None:
        """One thread per process: spinning OpenMP teams cost a decode step 8x on two cores (measured)."""
        if not os.environ.get("OMP_NUM_THREADS"):
            torch.set_num_threads(1)

    def apply_server_args_defaults(self, server_args: Any) -> None:
        """`--device cpu` means intel_amx, which becomes torch_native: wrong for SWA pools (overrides.py:1301).

        An idle scheduler polls without a pause, which takes a whole core from whoever else runs on this machine.
        """
        if server_args.attention_backend in (None, "intel_amx"):
            server_args.attention_backend = BACKEND
        server_args.sleep_on_idle = True
        if server_args.mem_fraction_static is None:
            server_args.mem_fraction_static = 0.5  # SGLang's guess is for GPUs; --max-total-tokens decides

    def get_default_attention_backend(self) -> str:
        """The name that `attention.register` took over."""
        return BACKEND

    def supports_speculative_algorithm(self, algorithm: str) -> bool:
        """Those whose draft model needs nothing but our attention; NGRAM and frozen-KV MTP are not asked for."""
        return algorithm in ("EAGLE", "EAGLE3", "STANDALONE")

    def get_speculative_worker_cls(self, algorithm: str) -> None:
        """SGLang's own, with stand-ins for kernels: asked once, before the worker is imported."""
        from island_engine.platform import speculation

        speculation.install()

    def get_speculative_cache_locs_fn(self) -> Any:
        """Where a verify step writes."""
        from island_engine.platform.speculation import extend_slots

        return extend_slots

    def get_device_total_memory(self, device_id: int = 0) -> int:
        """Bytes of main memory."""
        return int(psutil.virtual_memory().total)

    def get_current_memory_usage(self, device: Any = None) -> float:
        """Bytes in use."""
        memory = psutil.virtual_memory()
        return float(memory.total - memory.available)

    def get_device(self, device_id: int = 0) -> str:
        """The only one; its name, because SGLang takes it for a --device that was not given (utils/common.py:1122)."""
        return self.device_type

    def set_device(self, device: Any) -> None:
        """Nothing to choose."""

    def get_device_name(self, device_id: int = 0) -> str:
        """What logs and metrics call it."""
        return "plain-cpu"

    def get_device_uuid(self, device_id: int = 0) -> str:
        """There is one."""
        return "plain-cpu-0"

    def empty_cache(self) -> None:
        """Give memory back to the allocator."""
        gc.collect()
