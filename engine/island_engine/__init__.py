"""Radix Islands for SGLang: islands in the radix cache, a launcher, a gate and benchmarks.

Importing this package imports neither torch nor sglang; `island_engine.sizing` and
`island_engine.gate.report` are standard library only, because the operator imports them.
"""

SGLANG_VERSION = "0.5.23"  # pinned: every touch point with SGLang was read in this release
