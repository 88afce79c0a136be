"""What a token of a model costs in each KV pool, read from the config.json of a Hugging Face model.

It counts as SGLang 0.5.23 allocates (model_executor/pool_configurator.py): K and V for every layer of the text model,
also for layers that reuse the KV of an earlier one (`num_kv_shared_layers`) and where values are keys
(`attention_k_eq_v` shares a projection; norms differ, so both are stored). Layouts that it does not know are refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from island_engine.planner.errors import PlanError
from island_engine.sizing import Geometry

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

DTYPES = {  # --kv-cache-dtype of SGLang -> bytes per element
    "auto": 0,  # the model's own
    "float32": 4,
    "bfloat16": 2,
    "bf16": 2,
    "float16": 2,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
}
# A config.json leaves out what its class has by default (transformers 5.19, configuration_*.py).
_GEMMA = {"num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096}
DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma2": _GEMMA | {"num_hidden_layers": 26, "sliding_window_pattern": 2},
    "gemma3_text": _GEMMA | {"num_hidden_layers": 26, "sliding_window_pattern": 6},
    "gemma3n_text": _GEMMA
    | {"num_key_value_heads": 2, "num_hidden_layers": 35, "sliding_window": 512, "sliding_window_pattern": 5},
    "gemma4_text": _GEMMA | {"num_hidden_layers": 30, "sliding_window": 512, "sliding_window_pattern": 6},
    "gpt_oss": {
        "num_key_value_heads": 8,
        "head_dim": 64,
        "num_hidden_layers": 36,
        "sliding_window": 128,
        "sliding_window_pattern": 2,
    },
    "cohere2": {"num_hidden_layers": 40, "sliding_window": 4096, "sliding_window_pattern": 4},
}
# Architectures whose sliding layers get a pool of their own in SGLang 0.5.23 (configs/model_config.py,
# is_hybrid_swa_model) and that islands do not refuse. All others keep every layer in one full pool.
POOLED = frozenset(
    {
        "Gemma4ForCausalLM",
        "Gemma4ForConditionalGeneration",
        "Gemma4UnifiedForConditionalGeneration",
        "GptOssForCausalLM",
        "GraniteMoeSWAForCausalLM",
        "GraniteSWAForCausalLM",
        "IQuestQ1ForCausalLM",
        "LagunaForCausalLM",
        "MellumForCausalLM",
        "MuseGlimmerForCausalLM",
        "MuseGlimmerForConditionalGeneration",
        "Step3p5ForCausalLM",
        "Step3p7ForConditionalGeneration",
    }
)
_STATE = ("mamba", "linear_attention", "conv", "recurrent", "hybrid", "ssm")
_STATE_KEYS = ("ssm_state_size", "mamba_d_state", "mamba_num_heads", "hybrid_override_pattern", "linear_num_key_heads")
MOST, MOST_LAYERS = 1 << 20, 10_000  # of what a config.json counts: more is a mistake
_INSTEAD = "use a hybrid sliding-window model, or --geometry FILE"


@dataclass(frozen=True)
class Model:
    """A model's cost. `layers`: full, sliding; None when only the cost is known. `pooled`: SGLang 0.5.23 gives its
    sliding layers a pool of their own.
    """

    name: str
    cost: Geometry
    layers: tuple[int, int] | None = None
    dtype: str | None = None
    pooled: bool = True
    budget: int | None = None  # bytes for KV, where the file says it


def from_config(path: Path, dtype: str = "auto", tp: int = 1, draft_bytes: int = 0) -> Model:
    """The cost per GPU of the model in a folder, or of a config.json. `tp`: GPUs that share the KV heads. PlanError
    when the file is not there or its layout is not one that is known.
    """
    file = path / "config.json" if path.is_dir() else path
    config = _read("--model", file, "give the folder of a Hugging Face model, or its config.json")
    text = config.get("text_config", config)
    if not isinstance(text, dict):
        raise PlanError(f"--model {file}: text_config is not an object; {_INSTEAD}")
    said = DEFAULTS.get(str(text.get("model_type")), {}) | {
        key: value for key, value in text.items() if value is not None
    }
    size, own = _element(said, config, dtype)
    try:
        name = _name(config, said)
        full, sliding = _layers(name, said)
        _check_tp(said, tp)
        cost = Geometry(
            window=_window(name, said),
            full_bytes=full * _elements(said, tp, sliding=False) * size,
            swa_bytes=sliding * _elements(said, tp, sliding=True) * size,
            draft_bytes=draft_bytes,
        )
        return Model(name, cost, (full, sliding), own, name in POOLED or bool(said.get("is_hybrid_swa")))
    except PlanError:
        raise
    except KeyError as missing:
        raise PlanError(f"--model {file}: has no {missing.args[0]}, so its KV is not known; {_INSTEAD}") from None
    except (TypeError, ValueError, AttributeError) as fault:
        raise PlanError(f"--model {file}: {fault}; {_INSTEAD}") from None


def from_file(path: Path) -> Model:
    """The `geometry` of an InferenceService as JSON, spelled as there. PlanError names the field and the value."""
    said = _read("--geometry", path, "give a JSON object with slidingWindow, fullBytesPerToken and swaBytesPerToken")
    fields = {"slidingWindow": 1, "fullBytesPerToken": 1, "swaBytesPerToken": 1, "draftBytesPerToken": 0}
    values = []
    for field, least in fields.items():
        value = said.get(field, 0 if least == 0 else None)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise PlanError(f"--geometry {path}: {field} {json.dumps(value)}; use a whole number of at least {least}")
        values.append(value)
    budget = said.get("kvBudgetBytes")
    if budget is not None and (not isinstance(budget, int) or isinstance(budget, bool) or budget < 1):
        raise PlanError(f"--geometry {path}: kvBudgetBytes {json.dumps(budget)}; use a positive number of bytes")
    if unknown := sorted(set(said) - set(fields) - {"kvBudgetBytes", "name"}):
        raise PlanError(f"--geometry {path}: {unknown[0]} is not a field of it; use {', '.join(fields)}, kvBudgetBytes")
    return Model(str(said.get("name", path.name)), Geometry(*values), budget=budget)


def _read(flag: str, path: Path, instead: str) -> dict[str, Any]:
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except OSError as fault:
        raise PlanError(f"{flag} {path}: {(fault.strerror or 'unreadable').lower()}; {instead}") from None
    except ValueError:
        raise PlanError(f"{flag} {path}: is not JSON; {instead}") from None
    if not isinstance(said, dict):
        raise PlanError(f"{flag} {path}: is not a JSON object; {instead}")
    return said


def _name(config: Mapping[str, Any], said: Mapping[str, Any]) -> str:
    """What SGLang calls the model."""
    named = config.get("architectures") or said.get("architectures")
    return str(named[0] if named and isinstance(named, list) else said.get("model_type", "this model"))


def _whole(said: Mapping[str, Any], key: str, most: int) -> int:
    """A field that counts something. KeyError: it is missing; ValueError: it cannot be."""
    value = said[key]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= most:
        raise ValueError(f"{key} {json.dumps(value)} is not a whole number from 1 to {most}")
    return value


def _window(name: str, said: Mapping[str, Any]) -> int:
    """The sliding window, tokens."""
    for key in ("sliding_window", "sliding_window_size", "window_size"):
        if said.get(key):
            return _whole(said, key, MOST)
    raise ValueError(f"{name} has no sliding window")


def _layers(name: str, said: Mapping[str, Any]) -> tuple[int, int]:
    """Layers with full attention, layers with a sliding window. ValueError says why islands are not for it."""
    if chunk := said.get("attention_chunk_size"):
        raise ValueError(f"{name} attends in local chunks of {chunk} tokens, not in a window that slides")
    if said.get("kv_lora_rank"):
        raise ValueError(f"{name} keeps compressed KV (MLA), whose bytes per token are not known here")
    kinds = said.get("layer_types") or said.get("layers_block_type")
    if any(word in str(kind) for kind in kinds or () for word in _STATE) or any(said.get(key) for key in _STATE_KEYS):
        raise ValueError(f"{name} has Mamba or linear attention layers, whose state islands do not know")
    count = _whole(said, "num_hidden_layers", MOST_LAYERS)
    kinds = list(kinds or _pattern(said, count))[:count]
    if unknown := sorted(set(map(str, kinds)) - {"full_attention", "sliding_attention"}):
        raise ValueError(f"{name} has layers of a kind that is not known, {unknown[0]}")
    if len(kinds) < count:
        raise ValueError(f"{name} names the kind of {len(kinds)} of its {count} layers")
    if said.get("model_type") == "gemma4_text":  # its config class forces it
        kinds[-1] = "full_attention"
    if "sliding_attention" not in kinds or said.get("use_sliding_window") is False:
        raise ValueError(f"{name} has no sliding window, every layer attends to everything")
    if "full_attention" not in kinds:
        raise ValueError(f"{name} has no layer with full attention, so nothing is kept behind a window")
    return kinds.count("full_attention"), kinds.count("sliding_attention")


def _pattern(said: Mapping[str, Any], count: int) -> list[str]:
    """Kinds of the layers from an older spelling: every n-th is full, or "LLLG", or one 0 or 1 per layer."""
    if pattern := said.get("hybrid_layer_pattern"):
        return ["sliding_attention" if one else "full_attention" for one in pattern]
    pattern = said.get("sliding_window_pattern") or said.get("_sliding_window_pattern")
    if isinstance(pattern, str):
        return ["sliding_attention" if pattern[i % len(pattern)] == "L" else "full_attention" for i in range(count)]
    if isinstance(pattern, int) and pattern > 0:
        return ["sliding_attention" if (i + 1) % pattern else "full_attention" for i in range(count)]
    # No schedule: a window, where there is one, is every layer's.
    return ["sliding_attention" if said.get("sliding_window") else "full_attention"] * count


def _check_tp(said: Mapping[str, Any], tp: int) -> None:
    """PlanError where SGLang's models would not start: attention heads are divided among the GPUs, KV heads divided or
    replicated, whole ones only.
    """
    other = said.get("attention_other_setting") or {}
    counts = [said.get("num_attention_heads"), other.get("num_attention_heads")]
    asked = [_whole({"num_attention_heads": count}, "num_attention_heads", MOST) for count in counts if count]
    kept = [_whole(_shape(said, sliding=sliding), "heads", MOST) for sliding in (False, True)]

    def fits(gpus: int) -> bool:
        return not (any(n % gpus for n in asked) or any(max(n, gpus) % min(n, gpus) for n in kept))

    if not fits(tp):
        use = ", ".join(str(gpus) for gpus in range(1, max(asked or kept) + 1) if fits(gpus))
        heads = f"{' and '.join(map(str, dict.fromkeys(asked)))} attention heads and " if asked else ""
        keep = " and ".join(map(str, dict.fromkeys(kept)))
        raise PlanError(f"--tp-size {tp}: {heads}{keep} KV heads of a layer do not divide among {tp} GPUs: use {use}")


def _elements(said: Mapping[str, Any], tp: int, *, sliding: bool) -> int:
    """Elements of K and V that one layer of a kind keeps per token and GPU."""
    shape = _shape(said, sliding=sliding)
    heads, width, value = (_whole(shape, key, MOST) for key in ("heads", "width", "v_head_dim"))
    return max(1, heads // tp) * (width + value)


def _shape(said: Mapping[str, Any], *, sliding: bool) -> dict[str, Any]:
    """KV heads and widths of K and V of a layer of a kind: `heads`, `width`, `v_head_dim`."""
    shape = dict(said)
    shape["heads"] = said.get("num_key_value_heads") or said.get("num_attention_groups") or said["num_attention_heads"]
    shape["width"] = said.get("head_dim") or _whole(said, "hidden_size", MOST) // _whole(
        said, "num_attention_heads", MOST
    )
    if said.get("model_type") == "gemma4_text":  # states its sliding layers, and how the full ones differ
        shape |= {} if sliding else _gemma4_full(said)
    elif sliding:
        other = said.get("attention_other_setting") or {}
        names = {"heads": said.get("swa_num_key_value_heads") or other.get("num_attention_groups")}
        names |= {
            "width": said.get("swa_head_dim"),
            "v_head_dim": said.get("swa_v_head_dim") or said.get("swa_head_dim"),
        }
        shape |= {name: value for name, value in names.items() if value}
    if not shape.get("v_head_dim"):
        shape["v_head_dim"] = shape["width"]
    return shape


def _gemma4_full(said: Mapping[str, Any]) -> dict[str, Any]:
    """How Gemma 4's full layers differ, as its config class reads both spellings."""
    if "per_layer_config" in said:  # saved by transformers: only what differs, by layer
        own: Mapping[str, Any] = next(iter(said["per_layer_config"].values()), {})
        names = {"heads": own.get("num_key_value_heads"), "width": own.get("head_dim")}
    else:
        heads = said.get("num_global_key_value_heads") if said.get("attention_k_eq_v") else None
        names = {"heads": heads, "width": said.get("global_head_dim", 512)}
    return {name: value for name, value in names.items() if value}


def _element(said: Mapping[str, Any], config: Mapping[str, Any], dtype: str) -> tuple[int, str]:
    """Bytes of one element, and its type by name."""
    if dtype not in DTYPES:
        raise PlanError(f"--kv-dtype {dtype}: use {', '.join(DTYPES)}")
    own = next((str(of[key]) for of in (said, config) for key in ("dtype", "torch_dtype") if of.get(key)), "bfloat16")
    name = own.removeprefix("torch.") if dtype == "auto" else dtype
    if not DTYPES.get(name):
        raise PlanError(
            f"--kv-dtype auto: the model's own type, {name}, is not known; use {', '.join(list(DTYPES)[1:])}"
        )
    return DTYPES[name], name
