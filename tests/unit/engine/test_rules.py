"""What islands do not go with (island_engine/refusals.py): a sentence for each, and none for what they do go with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from island_engine import refusals
from island_engine.refusals import Model


def arguments(**given: object) -> Any:
    """SGLang's arguments where nothing is wrong."""
    usual: dict[str, object] = {
        "disable_radix_cache": False,
        "enable_hierarchical_cache": False,
        "enable_lmcache": False,
        "enable_flexkv": False,
        "enable_unified_cache_external_linker": False,
        "enable_hisparse": False,
        "disaggregation_mode": "null",
        "enable_pdmux": False,
        "pp_size": 1,
        "enable_session_radix_cache": False,
        "enable_streaming_session": False,
        "swa_prefix_tails": None,
        "chunked_prefill_size": 16384,
        "page_size": 64,
        "dllm_algorithm": None,
        "decoupled_spec_role": "null",
        "speculative_algorithm": None,
        "enable_encoder_swa_bounded_replay": False,
        "enable_decoder_swa_bounded_replay": None,
    }
    return SimpleNamespace(**{**usual, **given})


BROKEN = [
    ({"disable_radix_cache": True}, "--disable-radix-cache", "drop it"),
    ({"enable_hierarchical_cache": True}, "--enable-hierarchical-cache", "drop it"),
    ({"enable_lmcache": True}, "--enable-lmcache", "drop it"),
    ({"enable_flexkv": True}, "--enable-flexkv", "drop it"),
    ({"enable_unified_cache_external_linker": True}, "--enable-unified-cache-external-linker", "drop it"),
    ({"enable_hisparse": True}, "--enable-hisparse", "drop it"),
    ({"disaggregation_mode": "prefill"}, "--disaggregation-mode", "use null"),
    ({"disaggregation_mode": "decode"}, "--disaggregation-mode", "use null"),
    ({"enable_pdmux": True}, "--enable-pdmux", "drop it"),
    ({"pp_size": 2}, "--pp-size", "use 1"),
    ({"enable_session_radix_cache": True}, "--enable-session-radix-cache", "drop it"),
    ({"enable_streaming_session": True}, "--enable-streaming-session", "drop it"),
    ({"swa_prefix_tails": 0}, "--swa-prefix-tails", "size it by --swa-full-tokens-ratio"),
    ({"chunked_prefill_size": -1}, "--chunked-prefill-size", "use a positive number of tokens"),
    ({"chunked_prefill_size": None}, "--chunked-prefill-size", "use a positive number of tokens"),
    ({"dllm_algorithm": "LowConfidence"}, "--dllm-algorithm", "drop it"),
    ({"decoupled_spec_role": "verifier"}, "--decoupled-spec-role", "use null"),
    *(({"speculative_algorithm": name}, "--speculative-algorithm", "or NGRAM") for name in refusals.UNPROVED_DRAFTS),
    ({"enable_encoder_swa_bounded_replay": True}, "--enable-encoder-swa-bounded-replay", "drop it"),
    ({"enable_decoder_swa_bounded_replay": True}, "--enable-decoder-swa-bounded-replay", "drop it"),
]


@pytest.mark.parametrize(("given", "flag", "remedy"), BROKEN, ids=[f"{b[1]}-{b[0]}" for b in BROKEN])
def test_a_flag_that_does_not_fit(
    given: dict[str, object], flag: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(refusals.MODE, raising=False)
    said = refusals.of_arguments(arguments(**given))
    assert said is not None
    assert said.startswith(f"{flag} does not go with islands: ")
    assert remedy in said
    assert said.endswith(" or use SGLang's own cache (no --radix-cache-backend)")
    assert ". " not in said
    assert "\n" not in said


def test_every_rule_is_broken_above() -> None:
    assert {flag for _, flag, _ in BROKEN} == {rule.flag for rule in refusals.RULES}


@pytest.mark.parametrize("draft", [None, "EAGLE", "EAGLE3", "NEXTN", "FROZEN_KV_MTP", "STANDALONE", "NGRAM"])
def test_what_fits(draft: str | None) -> None:
    assert refusals.of_arguments(arguments(speculative_algorithm=draft)) is None


def test_a_chunk_is_whole_pages() -> None:
    said = refusals.of_arguments(arguments(chunked_prefill_size=1000))
    assert said == "--chunked-prefill-size 1000 is not a multiple of --page-size 64: use 1024"


def test_our_launcher_has_a_switch_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(refusals.MODE, "on")
    said = refusals.of_arguments(arguments(enable_lmcache=True))
    assert said is not None
    assert said.endswith("; drop it or use --islands off")


# --- models -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (Model("NemotronH", hybrid_swa=True, ssm=True), "NemotronH has Mamba or linear attention layers"),
        (Model("Llama4", hybrid_swa=True, attention_chunk=8192), "Llama4 attends in local chunks of 8192 tokens"),
        (Model("Qwen3", hybrid_swa=False), "Qwen3 has no sliding-window layers with a KV pool of their own"),
        (Model("Beam", hybrid_swa=True, full_layers=0), "Beam has no layer with full attention"),
        (Model("DeepseekV4", hybrid_swa=True, swa_in_tree=False), "DeepseekV4 keeps its SWA KV outside of the radix"),
    ],
)
def test_models_that_islands_are_not_for(model: Model, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(refusals.MODE, raising=False)
    said = refusals.of_model(model)
    assert said is not None
    assert said.startswith(says)
    assert said.endswith("use SGLang's own cache (no --radix-cache-backend)")


@pytest.mark.parametrize("full_layers", [None, 5])
def test_models_that_they_are_for(full_layers: int | None) -> None:
    assert refusals.of_model(Model("Gemma4", hybrid_swa=True, full_layers=full_layers)) is None


# --- the environment ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["-5", "4k", "3.5", "\u0663"])
def test_an_interval_that_is_no_number_of_tokens(value: str) -> None:
    said = refusals.of_environment({refusals.INTERVAL: value}, page=64)
    assert said is not None
    assert said.startswith(f"{refusals.INTERVAL}={value} is not a number of tokens: use 64 or more")


@pytest.mark.parametrize("value", ["0", "63"])
def test_an_interval_that_is_less_than_a_page(value: str) -> None:
    said = refusals.of_environment({refusals.INTERVAL: value}, page=64)
    assert said == f"{refusals.INTERVAL}={value} is less than --page-size 64: use 64 or more"


@pytest.mark.parametrize("value", ["0", "false", "No", "n"])
def test_sglangs_own_switch_of_prefill_islands(value: str) -> None:
    said = refusals.of_environment({refusals.EAGER: value}, page=64)
    assert said == f"{refusals.EAGER}={value} turns prefill islands off: unset it"


def test_an_environment_that_fits() -> None:
    assert refusals.of_environment({}, page=64) is None
    assert refusals.of_environment({refusals.INTERVAL: "64", refusals.EAGER: "1"}, page=64) is None
    assert refusals.of_environment({refusals.INTERVAL: ""}, page=64) is None
