"""What the engine's tests share. SGLang warns while it is imported; what it says there is not about this code."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import sglang.srt.entrypoints.engine  # noqa: F401 - all of SGLang, once
