"""The tiny model that the gate's tests ask."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("RADIX_ISLANDS_CACHE", Path.home() / ".cache" / "radix-islands"))


@pytest.fixture(scope="session")
def model() -> Path:
    path = CACHE / "models" / "tiny-gemma"
    # Its own process: one that has imported torch and transformers crashes at its very end.
    subprocess.run([sys.executable, "-m", "island_engine", "tiny-model", str(path)], check=True)
    return path
