"""The gate's view of one SGLang server over HTTP: ready, geometry, generate, retract, flush, counters."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import aiohttp

from island_engine.gate.outcome import error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    OnTokens = Callable[[tuple[int, ...], int], Awaitable[None]]

READY_SECONDS = 5.0  # one answer of /ready
CONTROL_SECONDS = 60.0  # /server_info, /metrics, one /flush_cache
GENERATE_SECONDS = 120.0  # one /generate, plus SECONDS_PER_TOKEN for each token it asks for
SECONDS_PER_TOKEN = 1.0
FLUSH_TRIES = 60  # half a second apart
MOST_BYTES = 64 << 20  # of one answer


TOP = 8  # logprobs per token that --strict compares

T = TypeVar("T")
Top = tuple[tuple[float, int], ...]  # the TOP likeliest tokens at one place: (logprob, token id), likeliest first


@dataclass(frozen=True)
class Prompt:
    """What to go on from: token ids, or else a text; and how many tokens to generate."""

    tokens: tuple[int, ...]
    new_tokens: int
    text: str = ""


@dataclass(frozen=True)
class Answer:
    """One generation: token ids, cached prefix tokens, and the TOP logprobs of each token where known."""

    output: tuple[int, ...]
    cached_tokens: int  # found when it was first admitted
    top: tuple[Top, ...]
    prompt_tokens: int = 0
    retractions: int = 0  # how often it was
    steps: int = 0  # verify steps that it took, with speculation

    @property
    def margins(self) -> tuple[float | None, ...]:
        """First less second logprob at each token, nats; None where fewer than two are known."""
        return tuple(t[0][0] - t[1][0] if len(t) > 1 else None for t in self.top)


class EngineClient:
    """Talks to one engine. Everything unexpected is a Conclude with its own reason."""

    def __init__(self, url: str, arm: str, key: str = "") -> None:
        self.arm = arm
        # One connection per request: a kept-alive one that the server just closed would look like a dead engine.
        self.session = aiohttp.ClientSession(
            url,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            connector=aiohttp.TCPConnector(force_close=True, limit=0),  # a scene is in flight as a whole
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
        return self._json(await self._call("GET", "/server_info", CONTROL_SECONDS), "/server_info", dict)

    async def generate(
        self, prompts: Sequence[Prompt], on_tokens: OnTokens | None = None, every: int = 1
    ) -> list[Answer]:
        """Greedy generations of exactly as many tokens as asked, of token ids all or of texts all. `on_tokens` is
        awaited with what the first has generated so far, and how often it was retracted, as it comes: the first token,
        then every `every` tokens.

        One request for all: SGLang hands a batch of token ids to its scheduler as one message, which puts them into the
        queue in this order before anything else happens (scheduler.py:3331). Requests of their own overtake each other.
        """
        body = {
            **({"text": [p.text for p in prompts]} if prompts[0].text else {"input_ids": [p.tokens for p in prompts]}),
            "sampling_params": [
                {
                    "temperature": 0,
                    "max_new_tokens": p.new_tokens,
                    "ignore_eos": True,
                    "stream_interval": p.new_tokens if i else every,  # nobody hears the others on their way
                }
                for i, p in enumerate(prompts)
            ],
            "return_logprob": True,
            "logprob_start_len": -1,  # logprobs of the prompt would forbid a full prefix hit
            "top_logprobs_num": TOP,
            "stream": on_tokens is not None,
        }
        seconds = GENERATE_SECONDS + SECONDS_PER_TOKEN * sum(p.new_tokens for p in prompts)
        if on_tokens is None:
            raws = self._json(await self._call("POST", "/generate", seconds, body), "/generate", list)
        else:
            raws = await self._stream(seconds, body, on_tokens)
        try:
            return [parse_answer(raw, p.new_tokens) for raw, p in zip(raws, prompts, strict=True)]
        except (KeyError, TypeError, ValueError, IndexError) as fault:
            raise error("BadAnswer", f"/generate of arm {self.arm} answered garbage: {fault}") from fault

    async def retract_all(self) -> None:
        """Take the KV of every running request away and let them go on: the engine computes it again."""
        await self._call("POST", "/pause_generation", CONTROL_SECONDS, {"mode": "retract"})
        await self._call("POST", "/continue_generation", CONTROL_SECONDS, {})

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

    async def look(self) -> Metrics:
        """Counters of the islands and gauges of the pools."""
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

    async def _stream(self, seconds: float, body: Any, on_tokens: OnTokens) -> list[dict[str, Any]]:
        """Every prompt's answer, put together of its events; an event holds all that was generated for one of them, or,
        if so configured, what is new.
        """
        answers: list[dict[str, Any]] = [{} for _ in body["sampling_params"]]
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            async with self.session.post("/generate", json=body, timeout=timeout, read_bufsize=1 << 22) as response:
                if response.status != 200:
                    await self._refused(response)
                async for line in response.content:
                    if not line.startswith(b"data: {"):
                        continue
                    told = self._json(line[6:], "/generate", dict)
                    index = told.get("index", -1)
                    if index not in range(len(answers)) or not isinstance(told.get("meta_info"), dict):
                        raise error("BadAnswer", f"/generate of arm {self.arm} streamed {line[6:300]!r}")
                    answers[index] = merged(answers[index], told)
                    if index == 0:
                        retractions = int(told["meta_info"].get("num_retractions") or 0)
                        await on_tokens(tuple(answers[0]["output_ids"]), retractions)
        except TimeoutError as fault:
            raise error("EngineSilent", f"/generate of arm {self.arm} did not answer in {seconds:.0f} s") from fault
        except (aiohttp.ClientError, OSError, ValueError) as fault:
            raise error("NoAnswer", f"/generate of arm {self.arm} failed: {type(fault).__name__}: {fault}") from fault
        return answers

    async def _refused(self, response: aiohttp.ClientResponse) -> NoReturn:
        said = (await _read(response))[:300].decode("utf-8", "replace").strip()
        raise error("BadAnswer", f"/generate of arm {self.arm} answered {response.status}: {said}")

    def _json(self, raw: bytes, path: str, kind: type[T]) -> T:
        try:
            value = json.loads(raw)
        except ValueError as fault:
            raise error("BadAnswer", f"{path} of arm {self.arm} answered no JSON: {raw[:80]!r}") from fault
        if not isinstance(value, kind):
            raise error("BadAnswer", f"{path} of arm {self.arm} answered no JSON {kind.__name__}: {raw[:80]!r}")
        return value


async def _read(response: aiohttp.ClientResponse) -> bytes:
    parts, size = [], 0
    async for part in response.content.iter_chunked(1 << 16):
        parts.append(part)
        size += len(part)
        if size > MOST_BYTES:
            raise ValueError(f"more than {MOST_BYTES} bytes")
    return b"".join(parts)


def merged(before: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    """An answer after one more event of its stream, which holds everything so far or only what is new."""
    meta = told["meta_info"]
    ids, tops = told.get("output_ids") or [], meta.get("output_top_logprobs") or []
    if before and ids[: len(before["output_ids"])] != before["output_ids"]:
        ids = before["output_ids"] + ids
        tops = before["meta_info"]["output_top_logprobs"] + tops
    return {"output_ids": ids, "meta_info": {**meta, "output_top_logprobs": tops}}


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
    top = tuple(
        tuple((float(logprob), int(token)) for logprob, token, *_ in entry or ())
        for entry in meta.get("output_top_logprobs") or ()
    )
    prompt, retractions, steps = (
        int(meta.get(name) or 0) for name in ("prompt_tokens", "num_retractions", "spec_verify_ct")
    )
    return Answer(output, cached, top, prompt, retractions, steps)


_SAMPLE = re.compile(r"^(island_\w+|sglang:\w+)(?:\{(.*)\})?\s+(\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
KEPT_LABELS = ("phase", "origin")  # others (model, rank, engine type) are summed over
POOLS = {
    "sglang:kv_used_tokens": "full_used",
    "sglang:kv_evictable_tokens": "full_cached",
    "sglang:swa_used_tokens": "swa_used",
    "sglang:swa_evictable_tokens": "swa_cached",
}  # gauges, in tokens: pinned by requests, and kept for reuse


@dataclass(frozen=True)
class Metrics:
    """One look at /metrics."""

    islands: dict[str, float]  # island_* samples, as `name` or `name{phase=x}`
    pools: dict[str, int]  # POOLS that were there


def parse_metrics(text: str) -> Metrics:
    """Samples of a Prometheus text page, summed over every label but KEPT_LABELS."""
    islands: dict[str, float] = {}
    pools: dict[str, int] = {}
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        if match[1] in POOLS:
            pools[POOLS[match[1]]] = pools.get(POOLS[match[1]], 0) + int(value)
        elif match[1].startswith("island_"):
            labels = ",".join(f"{k}={v}" for k, v in _LABEL.findall(match[2] or "") if k in KEPT_LABELS)
            name = f"{match[1]}{{{labels}}}" if labels else match[1]
            islands[name] = islands.get(name, 0.0) + value
    return Metrics(islands, pools)
