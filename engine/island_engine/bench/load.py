"""`python -m island_engine.bench.load`: SGLang's own bench_serving, run where `datasets` is not installed too.

SGLang imports that package for one dataset of pictures (benchmark/datasets/mmmu.py:8), which nobody asks for here.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType


def main() -> None:
    """The flags are bench_serving's."""
    if importlib.util.find_spec("datasets") is None:
        absent = ModuleType("datasets")
        absent.load_dataset = None  # type: ignore[attr-defined] # what mmmu.py takes from it
        sys.modules["datasets"] = absent
    from sglang.benchmark.serving import cli_main

    cli_main()


if __name__ == "__main__":
    main()
