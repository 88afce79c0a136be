"""The garbage collector, told what we hold."""

import gc

# Objects that are new on balance before the youngest are collected, such collections before the next generation's, and
# of those before all: by default 700, 10 and 10.
THRESHOLDS = 5_000, 10, 50


def spare() -> None:
    """Leave modules and the cache alone. A full collection walks all of them, and nobody is served meanwhile: with a
    thousand objects a quarter of a second on a busy machine, several times in a minute of rollouts. What is cached is
    plain JSON without cycles, which goes when it is replaced.
    """
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
