"""The model that an engine serves, as its files tell: window, vocabulary, revision."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from island_engine import flags
from island_engine.gate import arguments
from island_engine.gate.outcome import error

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Model:
    """What the gate reads of a model directory."""

    window: int  # sliding window, tokens
    vocab: int  # token ids


def is_local(engine_args: tuple[str, ...]) -> bool:
    """Whether --model-path names a folder, so that it must be there before anything boots; else the engine loads it."""
    name = arguments.model_name(engine_args) or ""
    return name.startswith(("/", ".", "~")) or Path(name).exists() or name.count("/") != 1


def directory(engine_args: tuple[str, ...], environment: Mapping[str, str]) -> Path:
    """The model's folder: as given, or where the hub's client has put its snapshot (models--ORG--NAME/snapshots)."""
    name = arguments.model_name(engine_args) or ""
    if is_local(engine_args):
        return Path(name).expanduser()
    home = Path(environment.get("HF_HOME") or Path(environment.get("HOME", "/")) / ".cache" / "huggingface")
    repository = Path(environment.get("HF_HUB_CACHE") or home / "hub") / f"models--{name.replace('/', '--')}"
    revision = flags.value(engine_args, "--revision") or "main"
    try:
        commit = (repository / "refs" / revision).read_text().strip()
    except OSError:
        commit = revision  # a commit is its own name
    return repository / "snapshots" / commit


def read(path: Path) -> Model:
    """Window and vocabulary from config.json. Concludes ERROR NoModel or NotHybrid."""
    try:
        config = json.loads((path / "config.json").read_text())
    except (OSError, ValueError) as fault:
        raise error("NoModel", f"--model-path {path} holds no readable config.json: {fault}") from fault
    text = config.get("text_config", config) if isinstance(config, dict) else {}
    window, vocab = text.get("sliding_window"), text.get("vocab_size")
    if type(window) is not int or window <= 0:
        raise error("NotHybrid", f"--model-path {path} has no sliding_window in its config.json: islands need one")
    if type(vocab) is not int or vocab <= 0:
        raise error("NoModel", f"--model-path {path} has no vocab_size in its config.json")
    return Model(window, vocab)


def revision(path: Path) -> str:
    """Hash of config.json's bytes and of every file's name and size: cheap on weights of any size."""
    sha = hashlib.sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        sha.update(f"{file.relative_to(path)} {file.stat().st_size}\n".encode())
    config = path / "config.json"
    if config.is_file():
        sha.update(config.read_bytes())
    return "sha256:" + sha.hexdigest()
