"""Runs inside the cluster: asks the Service without pause and prints one JSON line per request. Standard library only.

Every request is a new connection, so that kube-proxy chooses a pod each time, and nothing is retried: what a user would
see as an error is counted as one. Sessions re-send their growing transcript, as agents do.
"""

import json
import random
import socket
import sys
import threading
import time
import urllib.parse
import urllib.request

URL, LOAD = sys.argv[1], json.loads(sys.argv[2])  # fields of traffic.Load
WHOLE_LINES = threading.Lock()


def tokens(dice: random.Random, count: int) -> list[int]:
    """Random token ids without the tokenizer's specials."""
    return dice.choices(range(8, 512), k=count)


def ask(ids: list[int], new: int) -> dict[str, object]:
    """One request; the line to print for it."""
    begun = time.time()
    line: dict[str, object] = {"at": round(begun, 3), "prompt": len(ids), "new": new}
    body = {"input_ids": ids, "sampling_params": {"temperature": 0, "max_new_tokens": new, "ignore_eos": True}}
    request = urllib.request.Request(URL, json.dumps(body).encode(), {"Content-Type": "application/json"})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=LOAD["timeout"]) as reply:  # noqa: S310
            answer = json.load(reply)
        line["ids"] = answer["output_ids"]
        line["ok"] = len(answer["output_ids"]) == new
        line["cached"] = answer["meta_info"]["cached_tokens"]
    except Exception as error:  # noqa: BLE001 - whatever a user would see as a failure is one
        line["ok"], line["error"] = False, f"{type(error).__name__}: {error}"[:200]
    line["seconds"] = round(time.time() - begun, 3)
    return line


def work(seed: int) -> None:
    """Sessions one after another: what all share, then turn by turn the transcript with a few more tokens. The first is
    met anywhere in its life, so that the workers' sessions do not grow and end all at once.
    """
    dice = random.Random(seed)  # noqa: S311
    shared = tokens(random.Random("system"), LOAD["system"])  # noqa: S311
    age = dice.randrange(LOAD["turns"])
    while True:
        ids = [*shared, *tokens(dice, dice.choice(LOAD["first"]))]
        for _turn in range(age):
            ids += tokens(dice, dice.randint(*LOAD["output"]) + dice.randint(*LOAD["more"]))
        for _turn in range(age, LOAD["turns"]):
            line = ask(ids, dice.randint(*LOAD["output"]))
            ids += [*line.pop("ids", []), *tokens(dice, dice.randint(*LOAD["more"]))]  # type: ignore[misc]
            with WHOLE_LINES:
                print(json.dumps(line), flush=True)
            time.sleep(LOAD["pause"])
        age = 0


def until_it_answers(patience: float = 60) -> None:
    """A Service is behind its pods by a moment: kube-proxy refuses connections until it knows them."""
    where = urllib.parse.urlsplit(URL)
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            socket.create_connection((where.hostname, where.port), timeout=5).close()
        except OSError:
            time.sleep(0.2)
        else:
            return


until_it_answers()
for worker in range(LOAD["workers"]):
    threading.Thread(target=work, args=(worker,), daemon=True).start()
while True:
    time.sleep(3600)
