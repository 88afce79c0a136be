"""A small HTTP server with the surface of an SGLang engine that the gate uses. A process of its own, as the real one.

Its answers are a hash of everything before each token, so any difference in what it is asked shows. Its cache is a list
of token sequences, matched by whole pages. FAKE_FAULT (with FAKE_ARM) makes it misbehave in one way. A hundred of them
start in every run of the tests, so it does without imports of which a few lines are needed (http.server, argparse,
pathlib, typing): they took more than half of its time.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
import zlib
from socketserver import StreamRequestHandler, ThreadingTCPServer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

WINDOW, PAGE, CHUNK, INTERVAL, VOCAB = 16, 4, 32, 8, 512
LOG = os.readlink("/proc/self/fd/1")  # noqa: PTH115 - which arm this is
# What leads generate in profile quick: who is retracted, who is extended, who decodes while others fill the pool.
PRESSED, EXTENDED, FILLED = 156, 142, 136
COMPANY = {EXTENDED: 1, FILLED: 32}  # lead -> how many have their answers before it ends


class Model:
    def __init__(self, islands: bool, fault: str) -> None:
        self.islands = islands
        self.fault = fault
        self.lock = threading.Condition()  # told of every request and pause
        self.cache: list[list[int]] = []  # what finished requests left
        self.running: list[list[int]] = []  # decode islands of requests that still run
        self.active: dict[int, int] = {}  # request -> how often it was retracted
        self.planted = False
        self.fired = 0
        self.pauses = self.pressed = self.extended = 0
        self.serves = self.heard = 0
        self.flushes = 0
        self.counters = {"prefill": 0, "decode": 0, "hits": 0, "running": 0}

    def flush(self) -> int:
        self.flushes += 1
        if self.fault == "busy-once" and self.flushes == 1:
            return 400
        self.cache.clear()
        self.pauses = self.pressed = 0
        self.plant()
        self.running.clear()
        return 200

    def plant(self) -> None:
        """The fault that ISLAND_MUTATE=@FILE names, as FAKE_MUTATIONS (name=fault,...) knows it."""
        asked = os.environ.get("ISLAND_MUTATE", "")
        if asked.startswith("@") and self.islands:
            with open(asked[1:], encoding="utf-8") as told:  # noqa: PTH123
                name = told.read()
            known = dict(pair.split("=") for pair in os.environ["FAKE_MUTATIONS"].split(","))
            self.fault = known.get(name, "")
            self.planted = name != "none" and self.fault != "silent-fault"

    def pause(self) -> None:
        with self.lock:
            self.pauses += 1
            self.active = {request: times + 1 for request, times in self.active.items()}
            self.lock.notify_all()

    def batch(self, body: dict[str, Any]) -> Iterator[Any]:
        """What is generated so far for each prompt, as it comes; the last of each is whole."""
        texts = [[ord(c) % VOCAB for c in text] for text in body.get("text", ())]
        told: queue.Queue[Any] = queue.Queue()

        def one(index: int, tokens: list[int], count: int) -> None:
            try:
                for answer in self.generate(tokens, count):
                    told.put({**answer, "index": index + (self.fault == "strange-index")})
            finally:
                told.put(None)

        asked = list(zip(body.get("input_ids", texts), body["sampling_params"], strict=True))
        for index, (tokens, sampling) in enumerate(asked):
            threading.Thread(target=one, args=(index, tokens, sampling["max_new_tokens"]), daemon=True).start()
        for _ in asked:
            yield from iter(told.get, None)

    def generate(self, tokens: list[int], count: int) -> Iterator[Any]:
        """What is generated so far, token by token; the last is whole."""
        with self.lock:
            self.serves += 1
            request, serves, heard = self.serves, self.serves, self.heard
            self.active[request] = 0
            self.pressed += count == PRESSED
            self.extended += count == EXTENDED
            hasty = count == EXTENDED and self.fault in ("hasty", "hasty-once" if self.extended == 1 else "")
            self.lock.notify_all()
        self.fired += self.planted
        self.misbehave()
        cached = self.match(tokens)
        self.count(len(tokens), cached, count)
        salt = os.getpid() if self.fault == "random" and serves > 5 else 0
        output: list[int] = []
        top: list[Any] = []
        for index in range(count):
            token = zlib.crc32(repr((salt, tokens, output)).encode()) % VOCAB
            if self.fault == "diverge-once" and cached and index == 3 and "engine-on.log" in LOG:
                token = (token + 1) % VOCAB
            if self.fault == "diverge" and cached and index == 3:
                token = (token + 1) % VOCAB
            if self.fault == "diverge-running" and cached and self.running and index == 3:
                token = (token + 1) % VOCAB
            output.append(token)
            nudge = 1e-7 if self.fault == "nudge" and cached and index == 2 else 0.0
            top.append([[-0.5 + nudge, token, None], [-0.75, token + 1, None]])
            if self.islands and len(output) % INTERVAL == 0:
                with self.lock:
                    self.running.append(tokens + output)
            if hasty:
                continue  # nobody hears of it before its end
            if index == count - 1:
                self.wait_for(lambda: self.heard >= heard + COMPANY.get(count, 0))
            if count == PRESSED:
                pauses = 0 if self.fault == "unpressed" else min(index // 4, 7)
                self.wait_for(lambda pauses=pauses: self.pauses >= pauses and self.pressed >= 3)
            yield self.told(output, top, cached, request, len(tokens))
        if self.fault == "short":
            output.pop()
        with self.lock:
            self.cache.append((tokens + output)[:-1])  # the last token's KV is never written
            told = self.told(output, top, cached, request, len(tokens))
            del self.active[request]
        yield told

    def hear(self, answers: int) -> None:
        """So many have their answers."""
        with self.lock:
            self.heard += answers
            self.lock.notify_all()

    def wait_for(self, come: Callable[[], bool]) -> None:
        """However slow the machine: who is to be extended, or to be retracted, is still there."""
        with self.lock:
            self.lock.wait_for(come, 30)

    def told(self, output: list[int], top: list[Any], cached: int, request: int, length: int) -> Any:
        meta = {
            "cached_tokens": cached,
            "prompt_tokens": length,
            "num_retractions": 0 if self.fault == "unpressed" else self.active[request],
            "finish_reason": {"type": "length"},
            "output_top_logprobs": list(top),
        }
        return {"output_ids": list(output), "meta_info": meta}

    def match(self, tokens: list[int]) -> int:
        with self.lock:
            finished = max((self.common(tokens, known) for known in self.cache), default=0)
            running = max((self.common(tokens, known) for known in self.running), default=0)
        cached = min(max(finished, running), (len(tokens) - 1) // PAGE * PAGE)
        if running > finished:
            self.counters["running"] += running
        if self.fault == "shared":  # as if somebody else had just asked the same
            cached = max(cached, PAGE)
        if self.fault == "shallow" and cached:
            cached = max(0, cached - PAGE)
        return cached

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
            f'island_hit_tokens_total{{origin="running"}} {self.counters["running"]}.0\n'
            f"island_tombstone_hits_total {self.counters['hits']}.0\n"
            f"island_mutation_fired_total {self.fired}.0\n"
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
        return {
            "page_size": PAGE,
            "chunked_prefill_size": CHUNK,
            "max_req_input_len": 4000,
            "max_running_requests": 4,
            "internal_states": [state],
        }


class Handler(StreamRequestHandler):
    """As much of HTTP/1.0 as the gate speaks: one request a connection."""

    model: Model  # set by main

    def handle(self) -> None:
        if not (line := self.rfile.readline()):
            return  # who asked has gone
        method, self.path, _ = line.decode().split()
        length = 0
        while header := self.rfile.readline().strip().lower():
            if header.startswith(b"content-length:"):
                length = int(header.partition(b":")[2])
        if method == "GET":
            self.get()
        else:
            self.post(json.loads(self.rfile.read(length) or "{}"))

    def answer(self, status: int, body: str) -> None:
        raw = body.encode()
        self.wfile.write(f"HTTP/1.0 {status} as told\r\nContent-Length: {len(raw)}\r\n\r\n".encode() + raw)

    def get(self) -> None:
        if self.path == "/ready":
            self.answer(503 if self.model.fault == "never-ready" else 200, "")
        elif self.path == "/server_info":
            self.answer(200, json.dumps(self.model.info()))
        elif self.path == "/metrics/" and self.model.fault != "no-metrics":
            self.answer(200, self.model.metrics())
        else:
            self.answer(404, "")

    def post(self, body: dict[str, Any]) -> None:
        if self.path == "/flush_cache":
            self.answer(self.model.flush(), "")
        elif self.path in ("/pause_generation", "/continue_generation"):
            if body.get("mode") == "retract":
                self.model.pause()
            self.answer(200, "{}")
        elif self.model.fault == "refuses-loudly":
            self.answer(400, "<script>alert(1)</script>")
        elif self.model.fault == "refuses":
            self.answer(400, '{"error": "input too long"}')
        elif body["stream"]:
            self.wfile.write(b"HTTP/1.0 200 as told\r\n\r\n")
            for told in self.model.batch(body):
                self.wfile.write(f"data: {json.dumps(told)}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")
        else:
            last = {told["index"]: told for told in self.model.batch(body)}
            whole = [last[index] for index in sorted(last)]
            self.answer(200, "<html>" if self.model.fault == "garbage" else json.dumps(whole))
            self.rfile.read(1)  # who asked has it, and has closed the connection
            self.model.hear(len(whole))


class Listener(ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64  # a scene comes at once


def given(flag: str) -> str:
    return sys.argv[sys.argv.index(flag) + 1]


def main() -> None:
    islands, host, port = given("--islands"), given("--host"), int(given("--port"))
    if "--enable-metrics" not in sys.argv:
        sys.exit("the gate must enable metrics")
    here = os.environ.get("FAKE_ARM", "on")
    fault = os.environ.get("FAKE_FAULT", "") if here in (islands, "any") else ""
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
    Handler.model = Model(islands == "on", fault)
    Listener((host, port), Handler).serve_forever()


if __name__ == "__main__":
    main()
