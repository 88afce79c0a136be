"""A small HTTP server with the surface of an SGLang engine that the gate uses. A process of its own, as the real one.

Its answers are a hash of everything before each token, so any difference in what it is asked shows. Its cache is a list
of token sequences, matched by whole pages. FAKE_FAULT (with FAKE_ARM) makes it misbehave in one way.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WINDOW, PAGE, CHUNK, INTERVAL, VOCAB = 16, 4, 32, 8, 512


class Model:
    def __init__(self, islands: bool, fault: str) -> None:
        self.islands = islands
        self.fault = fault
        self.cache: list[list[int]] = []
        self.serves = 0
        self.flushes = 0
        self.counters = {"prefill": 0, "decode": 0, "hits": 0}

    def flush(self) -> int:
        self.flushes += 1
        if self.fault == "busy-once" and self.flushes == 1:
            return 400
        self.cache.clear()
        return 200

    def generate(self, body: dict[str, Any]) -> Any:
        tokens, count = list(body["input_ids"]), body["sampling_params"]["max_new_tokens"]
        self.serves += 1
        self.misbehave()
        if self.fault == "garbage":
            return "<html>"
        cached = max((self.common(tokens, known) for known in self.cache), default=0)
        cached = min(cached, (len(tokens) - 1) // PAGE * PAGE)
        if self.fault == "shared":  # as if somebody else had just asked the same
            cached = max(cached, PAGE)
        if self.fault == "shallow" and cached:
            cached = max(0, cached - PAGE)
        salt = os.getpid() if self.fault == "random" and self.serves > 5 else 0
        output: list[int] = []
        for index in range(count):
            token = zlib.crc32(repr((salt, tokens, output)).encode()) % VOCAB
            if self.fault == "diverge" and cached and index == 3:
                token = (token + 1) % VOCAB
            output.append(token)
        if self.fault == "short":
            output.pop()
        self.count(len(tokens), cached, count)
        self.cache.append(tokens + output)
        top = [[[-0.5, t, None], [-0.75, t + 1, None]] for t in output]
        return {
            "output_ids": output,
            "meta_info": {
                "cached_tokens": cached,
                "finish_reason": {"type": "length"},
                "output_token_logprobs": [[-0.5, t, None] for t in output],
                "output_top_logprobs": top,
            },
        }

    def misbehave(self) -> None:
        if self.serves < 3:
            return
        if self.fault == "die-while-serving":
            print("RuntimeError: CUDA error: an illegal memory access was encountered", flush=True)
            os._exit(3)
        if self.fault == "silent":
            time.sleep(600)

    @staticmethod
    def common(a: list[int], b: list[int]) -> int:
        same = 0
        for x, y in zip(a, b, strict=False):
            if x != y:
                break
            same += 1
        return same // PAGE * PAGE

    def count(self, length: int, cached: int, generated: int) -> None:
        if (self.islands or self.fault == "tainted") and self.fault != "vacuous":
            self.counters["prefill"] += max(0, (length - 1) // CHUNK)
            self.counters["decode"] += generated // INTERVAL
            self.counters["hits"] += cached > WINDOW + 2 * PAGE

    def metrics(self) -> str:
        if not self.islands and self.fault != "tainted":
            return "sglang:num_running_reqs 0\n"
        return (
            f'island_enabled{{engine="x"}} {int(self.islands and self.fault != "ignored-switch")}\n'
            f'island_published_total{{phase="prefill",rank="0"}} {self.counters["prefill"]}.0\n'
            f'island_published_total{{phase="decode",rank="0"}} {self.counters["decode"]}.0\n'
            f"island_tombstoned_tokens_total {PAGE * self.counters['prefill']}.0\n"
            f"island_tombstone_hits_total {self.counters['hits']}.0\n"
            f"island_frontier_violations_total {int(self.fault == 'violation') * self.serves}.0\n"
        )

    def info(self) -> Any:
        state = {"memory_usage": {"token_capacity": 4096, "token_capacity_swa": 1024}}
        if self.fault == "no-swa":
            state["memory_usage"]["token_capacity_swa"] = None  # type: ignore[assignment]
        if self.fault == "other-pool":
            state["memory_usage"]["token_capacity"] = 4000
        if self.fault == "bad-info":
            return {"internal_states": []}
        return {"page_size": PAGE, "chunked_prefill_size": CHUNK, "max_req_input_len": 4000, "internal_states": [state]}


def handler(model: Model) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self, status: int, body: str) -> None:
            raw = body.encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def do_GET(self) -> None:
            if self.path == "/ready":
                self.answer(503 if model.fault == "never-ready" else 200, "")
            elif self.path == "/server_info":
                self.answer(200, json.dumps(model.info()))
            elif self.path == "/metrics/":
                self.answer(200, model.metrics())
            else:
                self.answer(404, "")

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
            if self.path == "/flush_cache":
                self.answer(model.flush(), "")
            elif model.fault == "refuses":
                self.answer(400, '{"error": "input too long"}')
            else:
                answer = model.generate(body)
                self.answer(200, answer if isinstance(answer, str) else json.dumps(answer))

        def log_message(self, *_: object) -> None:
            return

    return Handler


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--islands", choices=["on", "off"], required=True)
    parser.add_argument("--island-decode-interval", type=int)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    options, rest = parser.parse_known_args()
    if "--enable-metrics" not in rest:
        sys.exit("the gate must enable metrics")
    here = os.environ.get("FAKE_ARM", "on")
    fault = os.environ.get("FAKE_FAULT", "") if here in (options.islands, "any") else ""
    if options.islands == "on" and os.environ.get("ISLAND_MUTATE"):
        fault = os.environ.get("FAKE_MUTATION", "diverge")
    if fault == "die-at-boot":
        print("loading\nValueError: --page-size 63: use a power of two\ncleaning up", flush=True)
        sys.exit(2)
    if fault == "port-taken":
        print("OSError: [Errno 98] error while attempting to bind: address already in use", flush=True)
        sys.exit(1)
    if fault == "leave-a-child" and os.fork() == 0:
        os.setsid()
        time.sleep(600)
    print(f"fake engine {os.getpid()}", flush=True)
    ThreadingHTTPServer((options.host, options.port), handler(Model(options.islands == "on", fault))).serve_forever()


if __name__ == "__main__":
    main()
