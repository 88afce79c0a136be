"""The gate's view of one SGLang server over HTTP: ready, geometry, generate, flush, counters."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from typing import Any

import aiohttp

from island_engine.gate.outcome import error

READY_SECONDS = 5.0  # one answer of /ready
CONTROL_SECONDS = 60.0  # /server_info, /metrics, one /flush_cache
GENERATE_SECONDS = 120.0  # one request, plus SECONDS_PER_TOKEN for each token it asks for
SECONDS_PER_TOKEN = 1.0
FLUSH_TRIES = 60  # half a second apart
MOST_BYTES = 64 << 20  # of one answer


@dataclass(frozen=True)
class Answer:
    """One generation: token ids, cached prefix tokens, and the top-2 margin (nats) of each token where known."""

    output: tuple[int, ...]
    cached_tokens: int
    logprobs: tuple[float | None, ...]
    margins: tuple[float | None, ...]


class EngineClient:
    """Talks to one engine. Everything unexpected is a Conclude with its own reason."""

    def __init__(self, url: str, arm: str, key: str = "") -> None:
        self.arm = arm
        # One connection per request: a kept-alive one that the server just closed would look like a dead engine.
        self.session = aiohttp.ClientSession(
            url,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            connector=aiohttp.TCPConnector(force_close=True),
            trust_env=False,
        )

    async def close(self) -> None:
        """Drop every connection."""
        await self.session.close()

    async def ready(self) -> bool:
        """Whether the engine takes requests; False while nothing listens."""
        try:
            async with self.session.get("/ready", timeout=aiohttp.ClientTimeout(total=READY_SECONDS)) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    async def server_info(self) -> dict[str, Any]:
        """What /server_info says."""
        return self._object(await self._call("GET", "/server_info", CONTROL_SECONDS), "/server_info")

    async def generate(self, tokens: tuple[int, ...], new_tokens: int) -> Answer:
        """Greedy generation of exactly `new_tokens` tokens."""
        body = {
            "input_ids": tokens,
            "sampling_params": {"temperature": 0, "max_new_tokens": new_tokens, "ignore_eos": True},
            "return_logprob": True,
            "logprob_start_len": -1,  # logprobs of the prompt would forbid a full prefix hit
            "top_logprobs_num": 2,
        }
        raw = await self._call("POST", "/generate", GENERATE_SECONDS + SECONDS_PER_TOKEN * new_tokens, body)
        try:
            return parse_answer(self._object(raw, "/generate"), new_tokens)
        except (KeyError, TypeError, ValueError, IndexError) as fault:
            raise error("BadAnswer", f"/generate of arm {self.arm} answered garbage: {fault}") from fault

    async def flush(self) -> None:
        """Empty the prefix cache; waits until the engine is idle, since it refuses while anything runs."""
        for _ in range(FLUSH_TRIES):
            status, _ = await self._raw("POST", "/flush_cache", CONTROL_SECONDS)
            if status == 200:
                return
            if status != 400:
                raise error("BadAnswer", f"/flush_cache of arm {self.arm} answered {status}")
            await asyncio.sleep(0.5)
        raise error("NeverIdle", f"arm {self.arm} never became idle, so its cache cannot be flushed")

    async def metrics(self) -> str:
        """The Prometheus page."""
        return (await self._call("GET", "/metrics/", CONTROL_SECONDS)).decode("utf-8", "replace")

    async def island_metrics(self) -> dict[str, float]:
        """Every island_* sample of /metrics, as `name` or `name{phase=x}`."""
        return parse_metrics(await self.metrics())

    async def _call(self, method: str, path: str, seconds: float, body: Any = None) -> bytes:
        status, raw = await self._raw(method, path, seconds, body)
        if status != 200:
            said = raw[:300].decode("utf-8", "replace").strip()
            raise error("BadAnswer", f"{path} of arm {self.arm} answered {status}: {said}")
        return raw

    async def _raw(self, method: str, path: str, seconds: float, body: Any = None) -> tuple[int, bytes]:
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            async with self.session.request(method, path, json=body, timeout=timeout) as response:
                raw = await _read(response)
                return response.status, raw
        except TimeoutError as fault:
            raise error("EngineSilent", f"{path} of arm {self.arm} did not answer in {seconds:.0f} s") from fault
        except (aiohttp.ClientError, OSError, ValueError) as fault:
            raise error("NoAnswer", f"{path} of arm {self.arm} failed: {type(fault).__name__}: {fault}") from fault

    def _object(self, raw: bytes, path: str) -> dict[str, Any]:
        try:
            value = json.loads(raw)
        except ValueError as fault:
            raise error("BadAnswer", f"{path} of arm {self.arm} answered no JSON: {raw[:80]!r}") from fault
        if not isinstance(value, dict):
            raise error("BadAnswer", f"{path} of arm {self.arm} answered no JSON object: {raw[:80]!r}")
        return value


async def _read(response: aiohttp.ClientResponse) -> bytes:
    parts, size = [], 0
    async for part in response.content.iter_chunked(1 << 16):
        parts.append(part)
        size += len(part)
        if size > MOST_BYTES:
            raise ValueError(f"more than {MOST_BYTES} bytes")
    return b"".join(parts)


def parse_answer(raw: dict[str, Any], new_tokens: int) -> Answer:
    """The Answer in a /generate response. KeyError, TypeError or ValueError when it is not one."""
    meta = raw["meta_info"]
    if not isinstance(meta, dict):
        raise TypeError(f"meta_info is {meta!r}")
    output = tuple(raw["output_ids"])
    if any(type(token) is not int for token in output):
        raise TypeError("output_ids are not all integers")
    if len(output) != new_tokens:
        raise ValueError(f"{len(output)} tokens instead of {new_tokens}, finish_reason {meta.get('finish_reason')}")
    cached = meta["cached_tokens"]
    if type(cached) is not int or cached < 0:
        raise TypeError(f"cached_tokens is {cached!r}")
    logprobs = tuple(_number(entry[0]) for entry in meta.get("output_token_logprobs") or ())
    margins = tuple(_margin(entry) for entry in meta.get("output_top_logprobs") or ())
    return Answer(output, cached, logprobs, margins)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _margin(top: Any) -> float | None:
    if not isinstance(top, list) or len(top) < 2:
        return None
    first, second = _number(top[0][0]), _number(top[1][0])
    return None if first is None or second is None else first - second


_SAMPLE = re.compile(r"^(island_\w+)(?:\{(.*)\})?\s+(\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
KEPT_LABELS = ("phase", "origin")  # others (model, rank, engine type) are summed over


def parse_metrics(text: str) -> dict[str, float]:
    """island_* samples of a Prometheus text page; `name{phase=decode}`, summed over every other label."""
    samples: dict[str, float] = {}
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match is None:
            continue
        labels = ",".join(f"{k}={v}" for k, v in _LABEL.findall(match[2] or "") if k in KEPT_LABELS)
        name = f"{match[1]}{{{labels}}}" if labels else match[1]
        try:
            samples[name] = samples.get(name, 0.0) + float(match[3])
        except ValueError:
            continue
    return samples
