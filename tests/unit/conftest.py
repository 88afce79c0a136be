"""Hypothesis in CI repeats itself: a build must not fail, or pass, by luck.

`HYPOTHESIS_PROFILE=explore` searches anew each time; what it finds becomes a test of its own.
"""

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True, database=None, print_blob=True, deadline=None)
settings.register_profile("explore", print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
