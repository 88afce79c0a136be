"""The verbatim engine arguments: contradictions are refused by name, secrets stay out, facts make a fingerprint."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from island_engine.gate import arguments, fingerprint, model
from island_engine.gate.arms import Arm
from island_engine.gate.outcome import Conclude

if TYPE_CHECKING:
    from pathlib import Path

GOOD = ("--model-path", "/m", "--page-size", "64")


@pytest.mark.parametrize(
    "extra",
    [
        ("--islands", "on"),
        ("--islands=off",),
        ("--isl", "on"),
        ("--island-decode-interval", "128"),
        ("--port", "1"),
        ("--port=1",),
        ("--host", "0.0.0.0"),  # noqa: S104 - refused, never bound
        ("--radix-cache-backend", "islands"),
        ("--radix-cache-back=islands",),
        ("--disable-radix-cache",),
        ("--config", "f.yaml"),
    ],
)
def test_contradictions_are_refused_by_name(extra: tuple[str, ...]) -> None:
    flag = extra[0].partition("=")[0]
    with pytest.raises(arguments.BadArgumentsError, match=f"^{flag} is not allowed"):
        arguments.check((*GOOD, *extra))


def test_ordinary_arguments_pass() -> None:
    arguments.check((*GOOD, "--dtype", "float32", "--context-length", "9", "--tp", "2", "--chunked-prefill-size=512"))


@pytest.mark.parametrize("given", [(), ("--page-size", "64"), ("--model-path",)])
def test_a_model_must_be_named(given: tuple[str, ...]) -> None:
    with pytest.raises(arguments.BadArgumentsError, match="--model-path is missing"):
        arguments.check(given)


def test_the_model_has_two_flags() -> None:
    assert arguments.model_name(("--model=/x",)) == arguments.model_name(("--model-path", "/x")) == "/x"


def test_arms_differ_in_the_switch_alone() -> None:
    off, on = Arm("off-A", GOOD, 128).command(9, ("serve",)), Arm("on", GOOD, 128).command(9, ("serve",))
    tail = (*GOOD, "--host", "127.0.0.1", "--port", "9")
    assert off == ("serve", "--islands", "off", *tail)
    assert on == ("serve", "--islands", "on", "--island-decode-interval", "128", *tail)
    assert Arm("on", GOOD).command(9, ("serve",)) == ("serve", "--islands", "on", *tail)


def test_metrics_are_enabled_once() -> None:
    assert arguments.with_metrics(GOOD) == (*GOOD, "--enable-metrics")
    assert arguments.with_metrics((*GOOD, "--enable-metrics")) == (*GOOD, "--enable-metrics")


def test_secrets_do_not_reach_a_report(tmp_path: Path) -> None:
    rest = ("--model-path", str(tmp_path), "--device", "cpu")
    for flag in ("--api-key", "--api-k", "--admin-api-key", "--admin"):
        for given in ((flag, "s3cret"), (f"{flag}=s3cret",), (f"{flag} s3cret",)):
            assert arguments.redacted((*given, "--dtype", "auto"))[-2:] == ("--dtype", "auto")
            assert flag in arguments.redacted(given)[0]
            assert "s3cret" not in json.dumps(fingerprint.facts((*given, *rest), None, {})), given


@pytest.mark.parametrize(
    ("config", "reason", "says"),
    [
        (None, "NoModel", "config.json"),
        ("{", "NoModel", "config.json"),
        ("[]", "NotHybrid", "sliding_window"),
        ('{"vocab_size": 5}', "NotHybrid", "sliding_window"),
        ('{"sliding_window": null, "vocab_size": 5}', "NotHybrid", "sliding_window"),
        ('{"sliding_window": 16}', "NoModel", "vocab_size"),
    ],
)
def test_a_model_that_is_none(tmp_path: Path, config: str | None, reason: str, says: str) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    with pytest.raises(Conclude, match=says) as concluded:
        model.read(tmp_path)
    assert concluded.value.reason == reason


def test_a_multimodal_config_is_read_at_its_text_part(tmp_path: Path) -> None:
    text = {"sliding_window": 1_024, "vocab_size": 262_144}
    (tmp_path / "config.json").write_text(json.dumps({"text_config": text, "vocab_size": 1}))
    read = model.read(tmp_path)
    assert (read.window, read.vocab) == (1_024, 262_144)


def test_every_fact_changes_the_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    args = ("--model-path", str(tmp_path), "--device", "cpu")

    def of(args: tuple[str, ...] = args, interval: int | None = None, **environment: str) -> str:
        return fingerprint.digest(fingerprint.facts(args, interval, environment))

    first = of()
    assert first.startswith("sha256:")
    assert of(UNRELATED="1") == first
    seen = {
        first,
        of((*args, "--dtype", "float32")),
        of(interval=128),
        of(ISLAND_IMAGE="sha256:1"),
        of(ISLAND_MUTATE="frontier"),
        of(SGLANG_X="1"),
    }
    (tmp_path / "model.safetensors").write_bytes(b"123")
    seen.add(of())
    (tmp_path / "model.safetensors").write_bytes(b"1234")
    seen.add(of())
    assert len(seen) == 8


@pytest.mark.parametrize(
    "changed",
    [
        ("_device", ("another", "")),
        ("_device", ("cpu", "590.1")),
        *(("_version", {"sglang": sglang, "radix-islands": plugin}.get) for sglang, plugin in (("1", "2"), ("2", "1"))),
    ],
)
def test_device_driver_and_versions_change_the_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: tuple[str, object]
) -> None:
    def of(device: object, version: object) -> str:
        monkeypatch.setattr(fingerprint, "_device", lambda _: device)
        monkeypatch.setattr(fingerprint, "_version", version)
        return fingerprint.digest(fingerprint.facts(("--model-path", str(tmp_path)), None, {}))

    same = ("cpu", ""), {"sglang": "1", "radix-islands": "1"}.get
    known = dict(zip(("_device", "_version"), same, strict=True))
    assert of(*same) == of(*same)
    assert of(*({**known, changed[0]: changed[1]}.values())) != of(*same)


def test_digest_does_not_depend_on_order() -> None:
    assert fingerprint.digest({"a": 1, "b": 2}) == fingerprint.digest({"b": 2, "a": 1})


def test_a_name_of_the_hub_is_read_where_the_engine_has_put_it(tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "models--google--gemma-4"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc\n")
    args = ("--model-path", "google/gemma-4")
    for environment in ({"HF_HOME": str(tmp_path)}, {"HF_HUB_CACHE": str(tmp_path / "hub")}):
        assert not model.is_local(args)
        assert model.directory(args, environment) == repository / "snapshots" / "abc"
        assert model.directory((*args, "--revision", "def"), environment) == repository / "snapshots" / "def"
    assert model.directory(args, {"HOME": "/h"}).is_relative_to("/h/.cache/huggingface/hub/models--google--gemma-4")


@pytest.mark.parametrize("name", ["/m", "./m", "m", "a/b/c"])
def test_anything_else_is_a_folder(name: str) -> None:
    assert model.is_local(("--model-path", name))
