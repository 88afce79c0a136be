"""A model that is named, not given as a folder: can it be had? SGLang asks too, but file by file, each with retries: a
minute without a network, and then a traceback.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from island_engine.guards import RefusedError

NAME = re.compile(r"[\w.-]+/[\w.-]+")  # ORG/NAME
SECONDS = 5.0  # for one answer


def check(name: str, revision: str | None) -> None:
    """Refuse a name of the hub that is neither in its cache nor to be fetched. What the hub answers, that it knows no
    such model or wants a token, is for SGLang to tell.
    """
    if not NAME.fullmatch(name) or Path(name).exists() or os.environ.get("SGLANG_USE_MODELSCOPE"):
        return
    import httpx
    from huggingface_hub import constants, errors, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache

    if isinstance(try_to_load_from_cache(name, "config.json", revision=revision), str):
        return
    if constants.HF_HUB_OFFLINE:
        raise RefusedError(
            f"--model-path {name}: not in the hub's cache, and HF_HUB_OFFLINE is set: fetch it first, or give a folder"
        )
    try:
        get_hf_file_metadata(hf_hub_url(name, "config.json", revision=revision), timeout=SECONDS)
    except httpx.TransportError as fault:
        raise RefusedError(
            f"--model-path {name}: {constants.ENDPOINT} cannot be reached ({fault or type(fault).__name__}): give the "
            "model's folder, or a network"
        ) from None
    except (errors.HfHubHTTPError, errors.FileMetadataError):
        return
