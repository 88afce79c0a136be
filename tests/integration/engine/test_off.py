"""With islands off: SGLang's own cache class, and none of our code on its path."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import json, sys
from sglang.srt.plugins import load_plugins
from sglang.srt.plugins.hook_registry import HookRegistry

load_plugins()  # as every process of an engine does
from island_engine.bench.rig import Rig, UnifiedRadixCache

hooked = sorted(HookRegistry._hooks)
rig, frames = Rig(), set()
rig.add(list(range(700)), new=150)
rig.add(list(range(600)) + list(range(1000, 1100)), new=150)

def trace(frame, event, _argument):
    if event == "call":
        frames.add(frame.f_code.co_filename)

sys.setprofile(trace)
rig.run()
sys.setprofile(None)
json.dump({
    "cache": type(rig.cache) is UnifiedRadixCache,
    "hooked": hooked,
    "files": sorted(frames),
}, sys.stdout)
"""
# Boot, and the shapes of a configuration file: nothing that runs while requests do.
BOOT = {
    "sglang.srt.arg_groups.speculative_hook._disable_overlap_schedule_for_cpu",  # on a CPU only
    "sglang.srt.entrypoints.engine._set_envs_and_config",
    "sglang.srt.managers.scheduler.Scheduler.__init__",
    "sglang.srt.model_executor.model_runner.ModelRunner.maybe_enable_batch_invariant_mode",  # on a CPU only
    "sglang.srt.utils.hf_transformers.config.HfModelConfigParser.parse",
}


def test_no_frame_of_ours_is_seen_and_nothing_is_hooked_that_runs_while_requests_do() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM], check=True, capture_output=True, text=True, timeout=300
    )
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["cache"]
    assert set(seen["hooked"]) <= BOOT
    ours = {file for file in seen["files"] if "/island_engine/" in file}
    assert {file for file in ours if "/island_engine/bench/" not in file} == set()  # the rig itself stands for a GPU
    assert any(file.endswith("mem_cache/unified_radix_cache.py") for file in seen["files"]), "the trace saw nothing"
