"""What is read of engine arguments, in every spelling that SGLang takes, against its own parser."""

from __future__ import annotations

import argparse
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sglang.srt.server_args import ServerArgs, compute_world_size

from island_engine import drafts, flags
from island_engine.gate import arguments as gate
from island_operator.core import arguments

PARSER = argparse.ArgumentParser(prog="sglang")
ServerArgs.add_cli_args(PARSER)
FLAGS: dict[str, argparse.Action] = {f: a for f, a in PARSER._option_string_actions.items() if f.startswith("--")}

DRAFTS = [f"--{name.replace('_', '-')}" for name in drafts.FIELDS]
DEGREES = [name for names in flags.DEGREES.values() for name in names]
READ = {*arguments.REFUSED, *arguments.ALIASES, *DRAFTS, *DEGREES, *flags.ATTENTION, flags.WITHIN_TP}
READ |= {*flags.PLACED, *gate.SECRET}
OTHERS = {"--device": "cpu", "--revision": "main", "--dtype": "float32", "--speculative-algorithm": "EAGLE"}
SWITCH = "--enable-deterministic-inference"
REFUSED = sorted(gate.REFUSED.keys() & FLAGS)
READ |= {*OTHERS, *REFUSED, SWITCH, "--model-path", "--model"}


def spellings(flag: str) -> list[str]:
    """The flag, and every beginning of it that is short for it alone."""
    shorter = [flag[:end] for end in range(len("--") + 1, len(flag)) if flag[:end] not in FLAGS]
    return [flag, *(word for word in shorter if [t[1] for t in PARSER._get_option_tuples(word)] == [flag])]


SPELLED = {flag: spellings(flag) for flag in sorted(READ)}


def said(word: str, value: str | None) -> list[list[str]]:
    """Both forms."""
    return [[word]] if value is None else [[word, value], [f"{word}={value}"]]


def takes_value(flag: str) -> bool:
    return FLAGS[flag].nargs != 0


def test_every_name_of_a_flag_that_is_read_is_known():
    """And that there are abbreviations, or the tests below would say nothing."""
    read = {id(FLAGS[flag]) for flag in READ}
    assert {f for f, action in FLAGS.items() if id(action) in read and not f.startswith("--no-")} == READ
    assert {"--tp", "--tensor-par", "--nnode", "--speculative-alg"} <= {w for words in SPELLED.values() for w in words}


@pytest.mark.parametrize("flag", [*arguments.REFUSED, *arguments.ALIASES])
def test_what_islands_refuse_is_refused_in_every_spelling(flag):
    value = {"--speculative-algorithm": "DFLASH"}.get(flag, "2") if takes_value(flag) else None
    for word in SPELLED[flag]:
        for given_ in said(word, value):
            assert arguments.refused(given_), given_


@pytest.mark.parametrize("flag", DRAFTS)
def test_drafts_are_read_in_every_spelling(flag):
    value = {"--speculative-algorithm": "NGRAM"}.get(flag, "7")
    others = [] if flag == "--speculative-algorithm" else ["--speculative-algorithm", "EAGLE"]
    wanted = drafts.of_arguments([*others, flag, value])
    assert wanted != drafts.of_arguments(others)
    for word in SPELLED[flag]:
        for given_ in said(word, value):
            assert drafts.of_arguments([*others, *given_]) == wanted, given_


def parts(args: list[str], count: int) -> dict[str, Any]:
    return {"engine": {"args": args}, "accelerator": {"resource": "nvidia.com/gpu", "count": count}}


@st.composite
def degrees(draw):
    """Arguments about devices, in any spelling and order, some of them twice."""
    valued = [*DEGREES, *flags.ATTENTION]
    args: list[str] = []
    for flag in draw(st.lists(st.sampled_from([*valued, *valued, flags.WITHIN_TP]), max_size=6)):
        value = str(draw(st.integers(1, 4))) if takes_value(flag) else None
        args += draw(st.sampled_from(said(draw(st.sampled_from(SPELLED[flag])), value)))
    return args


@pytest.mark.parametrize("flag", REFUSED)
def test_what_the_gate_refuses_is_refused_in_every_spelling(flag):
    for word in SPELLED[flag]:
        for given_ in said(word, "2" if takes_value(flag) else None):
            with pytest.raises(gate.BadArgumentsError, match=f"^{word} is not allowed"):
                gate.check(("--model-path", "/m", *given_))


def test_the_gate_refuses_flags_of_sglang_too():
    assert {"--port", "--radix-cache-backend", "--disable-radix-cache", "--config"} <= set(REFUSED)


@pytest.mark.parametrize("flag", ["--model-path", "--model", *OTHERS])
def test_what_the_gate_reads_it_reads_in_every_spelling(flag):
    for word in SPELLED[flag]:
        for given_ in said(word, OTHERS.get(flag, "/m")):
            read = PARSER.parse_args(["--model-path", "/m", *given_])
            assert flags.value(given_, flag) == str(vars(read)[FLAGS[flag].dest])
            assert gate.model_name(("--model-path", "/n", *given_)) == (read.model_path if "model" in flag else "/n")
            assert gate.batch_invariant(tuple(given_)) == (flag == "--dtype")
            assert gate.speculates(tuple(given_)) == (flag == "--speculative-algorithm")


def test_exactness_is_seen_and_secrets_are_kept_in_every_spelling():
    assert all(gate.exact((word,)) for word in SPELLED[SWITCH])
    for flag in gate.SECRET:
        for word in SPELLED[flag]:
            for given_ in said(word, "s3cret"):
                assert "s3cret" not in " ".join(gate.redacted(tuple(given_))), given_


@settings(deadline=None, max_examples=300)
@given(degrees())
def test_the_devices_of_an_engine_are_those_that_sglang_takes(args):
    read = PARSER.parse_args(["--model-path", "x", *args])
    within = read.enable_dp_attention and read.attn_dp_size == 1  # parallel_hook.handle_deprecated_dp_attention
    world = compute_world_size(dp_size=1 if within else read.dp_size, tp_size=read.tp_size, pp_size=read.pp_size)
    assert arguments.starved(parts(args, world)) is None
    assert flags.devices(args) == world
    if world > 1:
        told = arguments.starved(parts(args, world - 1))
        assert told is not None
        assert f" takes {world} of " in told


@pytest.mark.parametrize("flag", flags.PLACED)
def test_whoever_places_an_engine_knows_better_in_every_spelling(flag):
    for word in SPELLED[flag]:
        for given_ in said(word, "2"):
            assert arguments.starved(parts(["--tp", "8", *given_], 1)) is None, given_


def test_no_other_flag_is_taken_for_one_of_them():
    for flag in sorted({*FLAGS} - READ):
        args = [flag, "2"]
        assert arguments.refused(args) is None, flag
        assert arguments.starved(parts(args, 1)) is None, flag
        assert drafts.of_arguments(["--speculative-algorithm", "EAGLE", *args]) == drafts.Drafts("EAGLE"), flag
        assert arguments.starved(parts(["--tp", "2", *args], 1)) is not None, flag
        gate.check(("--model-path", "/m", *args))
        assert gate.redacted(tuple(args)) == tuple(args), flag
        assert not gate.exact(tuple(args)), flag
