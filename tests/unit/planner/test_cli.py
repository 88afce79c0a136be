"""`island-engine plan` as people call it: output, bad input, the check against an engine, the picture."""

import http.server
import io
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from island_engine import sizing
from island_engine.planner import check, geometry, of_spec, render
from island_engine.planner.plan import Plan
from island_engine.planner.workload import of_means

from .conftest import BUDGET, EXAMPLES, SEED

ENGINE = Path(__file__).parent / "engine"  # what a boot of the tiny model in fp32 logged and answered
LONG = ("--geometry", SEED, "--isl", 16384, "--osl", 8192, "--running", 128)
TINY = {
    "architectures": ["Gemma4ForCausalLM"],
    "model_type": "gemma4_text",
    "num_hidden_layers": 6,
    "sliding_window": 128,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "per_layer_config": {},
    "dtype": "float32",
}


@pytest.fixture
def tiny(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    return tmp_path


# --- output -----------------------------------------------------------------------------------------------------------


def test_json_has_what_the_interface_names(run):
    code, out, err = run(*LONG, "--ratio", 0.17, "--json")
    assert (code, err) == (0, "")
    said = json.loads(out)
    assert {
        "window",
        "page",
        "chunk",
        "full_layers",
        "swa_layers",
        "full_bytes_per_token",
        "swa_bytes_per_token",
    } < set(said)
    assert said["draft_bytes_per_token"] == 10_240
    for half in (said["halves"]["on"], said["halves"]["off"], said["at_ratio"], said["at_ratio_off"]):
        assert {"ratio", "max_total_tokens", "swa_tokens", "swa_floor", "running", "binds", "bound"} <= set(half)
    on = said["halves"]["on"]
    assert (on["running"], on["binds"], on["cliff"], on["flat"]) == (56.3, "full", 0.0563, [0.055, 0.061])
    assert (
        said["at_ratio"]["max_total_tokens"]
        == sizing.cut(sizing.Geometry(1024, 9500, 95000, 10240), 64, BUDGET, 0.17).max_total_tokens
    )
    assert said["verdict"]["kind"] == "random"
    assert said["verdict"]["simulated_percent"] == [3, 7]


def test_the_patch_that_is_shown_is_the_one_in_the_json(run):
    shown = run(*LONG)[1]
    patch = yaml.safe_load(shown[shown.index("# kubectl patch") :])
    assert patch == json.loads(run(*LONG, "--json")[1])["patch"]
    pair = patch["spec"]["partition"]
    assert pair["islands"] == {"swaFullTokensRatio": "0.0591", "maxTotalTokens": 1459264, "maxRunningRequests": 64}
    assert pair["stock"] == {"swaFullTokensRatio": "0.1025", "maxTotalTokens": 1255168, "maxRunningRequests": 51}


@pytest.mark.parametrize("width", [60, 72, 80, 100, 120, 200])
def test_no_cell_of_a_table_is_cut_on_a_narrow_terminal(width):
    plan = Plan(geometry.from_file(Path(SEED)), sizing.Serving(64, 16384, 128), BUDGET, of_means(16384, 8192))
    out = io.StringIO()
    rows = [check.Row("max_total_num_tokens", "1,459,264", "1,459,264", agrees=True)]
    render.show(plan, Console(file=out, width=width), 0.17, rows)
    shown = out.getvalue()
    assert "…" not in shown
    for side in (plan.on, plan.off, plan.at(0.17, islands=True)):
        assert f"{side.half.max_total_tokens:,}" in shown
    table = shown[: shown.index("# kubectl patch")].splitlines()
    assert max(map(len, table)) <= width
    assert (f"{plan.off.floor:,}" in shown) == (width >= 80)


@pytest.mark.parametrize("work", [(), ("--isl", 16384, "--osl", 8192)])
def test_the_patch_reads_back_to_the_same_plan(run, work):
    said = json.loads(run("--geometry", SEED, "--kv-bytes", BUDGET, *work, "--running", 96, "--json")[1])
    again = of_spec(said["patch"]["spec"], said["model"], of_means(*work[1::2]) if work else None)
    assert render.as_json(again)["halves"] == said["halves"]
    assert again.patch == said["patch"]


def test_people_see_the_same_numbers(run):
    shown = run(*LONG, "--ratio", "0.17")[1]
    for text in ("0.0591", "1,459,264", "0.1025", "1,255,168", "off, on the lean half", "0.17", "bound: 58.0"):
        assert text in shown


def test_where_all_that_come_are_run_it_says_from_which_ratio_to_which(run):
    some = ("--geometry", SEED, "--isl", 16384, "--osl", 8192, "--running", 48)
    halves = json.loads(run(*some, "--json")[1])["halves"]
    assert (halves["on"]["plateau"], halves["off"]["plateau"]) == ([0.0468, 0.105], [0.0922, 0.105])
    shown = run(*some)[1]
    assert "all 48 run from r 0.047 to 0.105" in shown
    assert "all 48 run from r 0.092 to 0.105" in shown
    assert json.loads(run(*LONG, "--json")[1])["halves"]["on"]["plateau"] is None


def test_json_goes_to_a_file_too(run, tmp_path):
    code, out, _ = run(*LONG, "--json", tmp_path / "plan.json")
    assert code == 0
    assert "run at once" in out
    assert json.loads((tmp_path / "plan.json").read_text())["kv_bytes"] == BUDGET


def test_a_request_log_is_a_workload(run, tmp_path):
    lines = [
        {"event": "request.received", "rid": "a"},
        {
            "event": "request.finished",
            "out": {"meta_info": {"prompt_tokens": 30_000, "completion_tokens": 1_000, "cached_tokens": 20_000}},
        },
        {
            "usage": {
                "prompt_tokens": 10_000,
                "completion_tokens": 3_000,
                "prompt_tokens_details": {"cached_tokens": 4_000},
            }
        },
        {"timestamp": 1, "input_length": 20_000, "output_length": 2_000},
    ]
    log = tmp_path / "requests.jsonl"
    log.write_text("\n\n".join(map(json.dumps, lines)) + "\n")
    work = json.loads(run("--geometry", SEED, "--requests", log, "--json")[1])["workload"]
    assert work["osl"] == 2_000
    assert work["isl"] == pytest.approx((30e6 + 30e6 + 40e6) / 6_000)  # who generates longer counts for longer
    assert work["decoded"] == pytest.approx((1e6 + 9e6 + 4e6) / 2 / 6_000)
    assert work["reuse"] == pytest.approx(24_000 / 60_000)
    assert (
        json.loads(run("--geometry", SEED, "--requests", log, "--prefix-reuse", 0, "--json")[1])["workload"]["reuse"]
        == 0
    )


@pytest.mark.parametrize("text", ["37000000000", "37e9", "37GB", "37,000,000,000", "37 G", "37000M"])
def test_spellings_of_bytes(run, text):
    assert json.loads(run("--geometry", SEED, "--kv-bytes", text, "--json")[1])["kv_bytes"] == BUDGET


def test_binary_units_are_binary(run):
    assert json.loads(run("--geometry", SEED, "--kv-bytes", "34.5GiB", "--json")[1])["kv_bytes"] == int(34.5 * 2**30)


VERDICTS = {
    "no workload": (),
    "random": ("--isl", 16384, "--osl", 8192, "--running", 128),
    "little": ("--isl", 16384, "--osl", 8192, "--concurrency", 24),
    "sessions": (
        "--isl",
        20307,
        "--osl",
        1250,
        "--running",
        128,
        "--concurrency",
        80,
        "--prefix-reuse",
        0.8,
        "--shared-prefix",
        8192,
    ),
}


@pytest.mark.parametrize("kind", VERDICTS)
def test_the_verdict_says_when_islands_bring_little(run, kind):
    assert json.loads(run("--geometry", SEED, *VERDICTS[kind], "--json")[1])["verdict"]["kind"] == kind
    assert run("--geometry", SEED, *VERDICTS[kind])[0] == 0


def test_a_short_window_leaves_little_to_save(run):
    gpt = ("--model", EXAMPLES / "gpt-oss-20b", "--kv-bytes", "24GiB", "--isl", 20000, "--osl", 1200, "--running", 256)
    for more in ((), ("--prefix-reuse", 0.8, "--concurrency", 200)):
        verdict = json.loads(run(*gpt, *more, "--json")[1])["verdict"]
        assert (verdict["kind"], verdict["simulated_percent"]) == ("little", None)
        assert "which is little" in verdict["text"]


def test_a_model_without_a_pool_for_its_windows_is_told_so(run, tmp_path):
    (tmp_path / "config.json").write_text(
        json.dumps({"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text"})
    )
    said = json.loads(run("--model", tmp_path, "--kv-bytes", "40e9", "--isl", 9000, "--osl", 500, "--json")[1])
    assert said["verdict"]["kind"] == "no pool"
    assert "Gemma3ForCausalLM in one pool" in said["verdict"]["text"]


def test_kubectl_s_plan_is_that_of_the_spec():
    spec = {
        "geometry": {
            "slidingWindow": 1024,
            "fullBytesPerToken": 9500,
            "swaBytesPerToken": 95000,
            "draftBytesPerToken": 10240,
            "kvBudgetBytes": BUDGET,
        },
        "engine": {"pageSize": 64, "chunkedPrefillSize": 16384, "maxRunningRequests": 48},
    }
    found = of_spec(spec, "gemma")
    assert found.halves.islands == sizing.Half("0.0492", 1_515_520)
    assert found.patch["spec"]["partition"]["islands"] == {"swaFullTokensRatio": "0.0492", "maxTotalTokens": 1515520}
    spec["geometry"]["kvBudgetBytes"] = 10**9
    with pytest.raises(
        ValueError, match=r"geometry.kvBudgetBytes 1000000000 is .* a smaller engine.maxRunningRequests$"
    ):
        _ = of_spec(spec, "gemma").halves
    del spec["geometry"]["kvBudgetBytes"]
    with pytest.raises(ValueError, match=r"geometry.kvBudgetBytes is missing: give"):
        of_spec(spec, "gemma")


TREE = {"algorithm": "EAGLE", "num-steps": 3, "eagle-topk": 4, "num-draft-tokens": 16}  # reserves 2 * 2 pages * 4
FLAGS = [word for name, value in TREE.items() for word in (f"--speculative-{name}", str(value))]


def test_a_tree_of_drafts_takes_its_pages_of_every_request(run):
    long = ("--geometry", SEED, "--isl", 16384, "--osl", 8192, "--running", 128)
    plain, chain, tree = (json.loads(run(*long, *more, "--json")[1]) for more in ((), FLAGS[:2], FLAGS))
    assert (plain["reserved_ahead"], chain["reserved_ahead"], tree["reserved_ahead"]) == (1, 8, 1024)
    assert chain["halves"] == plain["halves"]
    for half in ("on", "off"):
        assert tree["halves"][half]["ratio"] > plain["halves"][half]["ratio"]
        assert tree["halves"][half]["running"] < plain["halves"][half]["running"]
    assert "1,024 slots ahead of each for drafts" in run(*long, *FLAGS)[1]
    assert "drafts" not in run(*long, *FLAGS[:2])[1]


def test_the_drafts_of_a_spec_are_those_of_its_arguments():
    geometry = {"slidingWindow": 1024, "fullBytesPerToken": 9500, "swaBytesPerToken": 95000, "kvBudgetBytes": BUDGET}
    engine = {"pageSize": 64, "chunkedPrefillSize": 16384, "maxRunningRequests": 48}
    plain, tree = (of_spec({"geometry": geometry, "engine": engine | more}, "x") for more in ({}, {"args": FLAGS}))
    assert (plain.serving.ahead, tree.serving.ahead) == (1, 1024)
    assert tree.on.half.swa_tokens > plain.on.half.swa_tokens + 40 * 1024


# --- bad input --------------------------------------------------------------------------------------------------------

WRONG = {
    "no model": (("--kv-bytes", 1), "--model or --geometry: neither is given; use one of them"),
    "both": (("--model", "x", "--geometry", SEED), "--model or --geometry: both are given; use one of them"),
    "missing file": (("--model", "/nowhere"), "--model /nowhere: no such file or directory; give the folder"),
    "missing geometry": (
        ("--geometry", "/nowhere"),
        "--geometry /nowhere: no such file or directory; give a JSON object",
    ),
    "not JSON": (("--geometry", __file__), "is not JSON; give a JSON object with slidingWindow"),
    "no bytes": (("--model", EXAMPLES / "gpt-oss-20b"), "--kv-bytes is missing: give the bytes for KV, such as 37e9"),
    "negative bytes": (("--geometry", SEED, "--kv-bytes=-5"), "--kv-bytes -5: use a number of bytes, such as 37e9"),
    "bytes in words": (("--geometry", SEED, "--kv-bytes", "lots"), "--kv-bytes lots: use a number of bytes"),
    "bytes too few for a floor": (
        ("--geometry", SEED, "--kv-bytes", "1GB"),
        "is below the floor of 48 running requests without islands: use at least 13871607040, or a smaller --running",
    ),
    "bytes too few for one request": (
        ("--geometry", SEED, "--kv-bytes", "1GB", "--isl", 16384, "--osl", 8192),
        "does not hold one request of 25941 tokens beside a chunk of 16384: use at least",
    ),
    "a type": (
        ("--model", EXAMPLES / "gpt-oss-20b", "--kv-dtype", "int3", "--kv-bytes", "9e9"),
        "--kv-dtype int3: use auto, float32",
    ),
    "a negative length": (("--geometry", SEED, "--isl=-3", "--osl", 9), "--isl -3: use a positive number of tokens"),
    "only isl": (("--geometry", SEED, "--isl", 9), "--isl alone says too little: give --osl too"),
    "no number": (("--geometry", SEED, "--running", "many"), "--running many: use a positive whole number"),
    "more requests than the API server takes": (
        ("--geometry", SEED, "--running", 100_000, "--isl", 9, "--osl", 9),
        "--running 100000 is above the 4096 of an InferenceService: use less",
    ),
    "more tokens than the API server takes": (
        ("--geometry", SEED, "--kv-bytes", "1e15"),
        "tokens, above the 1000000000 of an InferenceService: use less",
    ),
    "a tree of nothing": (
        ("--geometry", SEED, "--speculative-eagle-topk", 4),
        "--speculative-eagle-topk needs --speculative-algorithm, such as EAGLE: give both",
    ),
    "running 0": (("--geometry", SEED, "--running", 0), "--running 0: use a positive whole number"),
    "reuse above 1": (
        ("--geometry", SEED, "--isl", 9, "--osl", 9, "--prefix-reuse", 80),
        "--prefix-reuse 80: use a share from 0 to 1",
    ),
    "a shared prefix longer than prompts": (
        ("--geometry", SEED, "--isl", 9, "--osl", 9, "--shared-prefix", 9),
        "--shared-prefix 9 is not below the mean prompt of 9: use less",
    ),
    "ratio above 1": (("--geometry", SEED, "--ratio", 1.5), "--ratio 1.5: use a ratio above 0 and at most 1"),
    "ratio 0": (("--geometry", SEED, "--ratio", 0), "--ratio 0: use a ratio above 0 and at most 1"),
    "a chunk between pages": (
        ("--geometry", SEED, "--chunked-prefill-size", 1000),
        "is not a multiple of --page-size 64: use 1024",
    ),
    "concurrency alone": (
        ("--geometry", SEED, "--concurrency", 9),
        "--concurrency describes a workload: give its --isl and --osl",
    ),
    "a log and lengths": (("--geometry", SEED, "--requests", SEED, "--isl", 9), "--isl with --requests: drop one"),
    "a log that is missing": (("--geometry", SEED, "--requests", "/nowhere"), "--requests /nowhere: no such file"),
    "a log that is no JSON": (
        ("--geometry", SEED, "--requests", __file__),
        "line 1 is not JSON; give one object a line",
    ),
    "a plot without a workload": (
        ("--geometry", SEED, "--plot", "x.png"),
        "--plot draws what a workload runs: give --isl",
    ),
    "a plot of another kind": ((*LONG, "--plot", "x.svg"), "--plot x.svg: give a file that ends in .png"),
    "a folder that is missing": (
        (*LONG, "--plot", "/nowhere/x.png"),
        "--plot /nowhere/x.png: its folder does not exist",
    ),
    "tp 3": (
        ("--model", EXAMPLES / "gpt-oss-20b", "--tp-size", 3),
        "island-engine: --tp-size 3: 64 attention heads and 8 KV heads of a layer do not divide among 3 GPUs: "
        "use 1, 2, 4, 8, 16, 32, 64\n",
    ),
    "tp of both kinds of layers": (
        ("--model", EXAMPLES / "gemma-4-26b-a4b", "--tp-size", 32),
        "island-engine: --tp-size 32: 16 attention heads and 2 and 8 KV heads of a layer do not divide among 32 GPUs: "
        "use 1, 2, 4, 8, 16\n",
    ),
    "tp 0": (("--model", EXAMPLES / "gpt-oss-20b", "--tp-size", 0), "--tp-size 0: use a positive number of GPUs"),
    "a draft beside a geometry": (
        ("--geometry", SEED, "--draft-bytes-per-token", 9),
        "--draft-bytes-per-token with --geometry: drop it",
    ),
    "a log without an engine": (
        ("--geometry", SEED, "--check", __file__),
        "names no SWA pool; give the whole log of a boot",
    ),
    "an engine that does not answer": (
        ("--geometry", SEED, "--check", "http://127.0.0.1:9"),
        "Connection refused; give a boot's log, or the http://HOST:PORT",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_input_is_one_sentence_and_2(run, name):
    arguments, said = WRONG[name]
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("island-engine: ")
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"fullBytesPerToken": 1, "swaBytesPerToken": 1}, "slidingWindow null; use a whole number of at least 1"),
        (
            {"slidingWindow": 128, "fullBytesPerToken": 0, "swaBytesPerToken": 1},
            "fullBytesPerToken 0; use a whole number",
        ),
        ({"slidingWindow": 128, "fullBytesPerToken": 1, "swaBytesPerToken": True}, "swaBytesPerToken true; use"),
        (
            {"slidingWindow": 128, "fullBytesPerToken": 1, "swaBytesPerToken": 1, "kvBudgetBytes": "37e9"},
            "kvBudgetBytes",
        ),
        (
            {"slidingWindow": 128, "fullBytesPerToken": 1, "swaBytesPerToken": 1, "page": 64},
            "page is not a field of it; use",
        ),
        ([], "is not a JSON object"),
    ],
)
def test_a_geometry_that_is_wrong_names_its_field(run, tmp_path, content, said):
    path = tmp_path / "geometry.json"
    path.write_text(json.dumps(content))
    code, _, err = run("--geometry", path)
    assert code == 2
    assert f"--geometry {path}: " in err
    assert said in err


def test_a_log_without_lengths_names_the_fields(run, tmp_path):
    (tmp_path / "log").write_text('{"prompt_tokens": 5}\n')
    code, _, err = run("--geometry", SEED, "--requests", tmp_path / "log")
    assert code == 2
    assert "no line has both prompt_tokens and completion_tokens" in err


# --- against an engine ------------------------------------------------------------------------------------------------


def test_a_boot_log_gives_the_budget_and_agrees(run, tiny):
    code, out, _ = run("--model", tiny, "--check", ENGINE / "boot.log", "--json")
    said = json.loads(out)
    assert code == 0
    assert said["kv_bytes"] == 12_158_464 * (256 + 0.4 * 1280)  # what SGLang found room for, before --max-total-tokens
    assert (said["page"], said["chunk"], said["max_running_requests"]) == (64, 512, 8)
    assert all(row["agrees"] for row in said["check"])
    assert {"SWA pool at its ratio", "bytes of both pools", "full pool, GB"} <= {row["what"] for row in said["check"]}


def test_what_differs_is_said_and_the_exit_code_is_1(run, tiny):
    code, out, _ = run("--model", tiny, "--check", ENGINE / "boot.log", "--page-size", 32, "--kv-bytes", "9GB")
    assert code == 1
    differ = [line.split("  ")[0].strip() for line in out.splitlines() if line.rstrip().endswith("differs")]
    assert differ == ["page size", "bytes for KV"]


def test_a_model_of_another_size_does_not_agree_with_the_log(run, tiny, tmp_path):
    log = tmp_path / "boot.log"  # pools large enough for the log's two decimals
    text = (ENGINE / "boot.log").read_text().replace("19968", "1996800").replace("7936", "798720")
    log.write_text(text.replace("size: 0.00 GB", "size: 0.24 GB", 2).replace("size: 0.00 GB", "size: 0.48 GB"))
    assert run("--model", tiny, "--check", log)[0] == 0
    assert run("--model", tiny, "--kv-dtype", "bf16", "--check", log)[0] == 1


class Answers(http.server.BaseHTTPRequestHandler):
    metrics = True
    info = (ENGINE / "server_info.json").read_bytes()

    def do_GET(self):
        found = self.metrics or self.path != "/metrics"
        self.send_response(200 if found else 404)
        self.end_headers()
        if found:
            self.wfile.write(self.info if self.path == "/server_info" else (ENGINE / "metrics.txt").read_bytes())

    def log_message(self, *_):
        pass


@pytest.fixture(params=[True, False], ids=["with metrics", "without"])
def engine(request, monkeypatch):
    """A server that answers what the tiny engine answered while one request ran."""
    monkeypatch.setattr(Answers, "metrics", request.param)
    with http.server.HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", request.param
        server.shutdown()
        thread.join()


def test_a_running_engine_agrees(run, tiny, engine):
    url, metrics = engine
    code, out, _ = run("--model", tiny, "--check", url, "--json")
    said = json.loads(out)
    assert code == 0
    assert said["kv_bytes"] == 19_968 * 256 + 7_936 * 1280  # what its pools take
    rows = {row["what"]: row["engine"] for row in said["check"]}
    assert rows["SWA pool at its ratio"] == "7,936"
    assert rows.get("SWA held a request") == ("256" if metrics else None)


def test_an_engine_that_drafts_says_what_it_reserves(run, tiny, engine, monkeypatch):
    said = {f"speculative_{name.replace('-', '_')}": value for name, value in TREE.items()} | {
        "speculative_eagle_topk": 2
    }
    monkeypatch.setattr(Answers, "info", json.dumps(json.loads(Answers.info) | said).encode())
    for flags, code, planned in (((), 0, "512"), (FLAGS[:2], 1, "8")):
        found, out, _ = run("--model", tiny, "--check", engine[0], "--json", *flags)
        rows = {row["what"]: (row["planned"], row["engine"]) for row in json.loads(out)["check"]}
        assert (found, rows["reserved ahead for drafts"]) == (code, (planned, "512"))


def test_a_boot_log_says_what_it_reserves(run, tiny, tmp_path):
    log, fields = tmp_path / "boot.log", {f"speculative_{name.replace('-', '_')}": said for name, said in TREE.items()}
    printed = ", ".join(f"{name!r}: {said!r}" for name, said in fields.items())
    log.write_text((ENGINE / "boot.log").read_text().replace("'tp_size': 1", f"'tp_size': 1, {printed}"))
    assert json.loads(run("--model", tiny, "--check", log, "--json")[1])["reserved_ahead"] == 1024


@pytest.mark.parametrize(
    "answer",
    [
        b"[]",
        b"<html>",
        b'{"max_total_num_tokens": 5, "internal_states": [{"memory_usage": {"token_capacity_swa": 5}}]}',
    ],
)
def test_another_server_is_told_so(run, tiny, engine, monkeypatch, answer):
    monkeypatch.setattr(Answers, "info", answer)
    code, _, err = run("--model", tiny, "--check", engine[0])
    assert code == 2
    assert "/server_info is not SGLang's; give the engine's own address" in err


def test_an_engine_with_one_pool_is_told_so(run, tiny, engine, monkeypatch):
    monkeypatch.setattr(Answers, "info", b'{"max_total_num_tokens": 5, "internal_states": []}')
    assert "has no SWA pool; give one of a hybrid sliding-window model" in run("--model", tiny, "--check", engine[0])[2]


# --- the picture, and how light it is ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["random", "sessions"])
def test_the_picture_is_a_png_of_three_panels(run, tmp_path, kind):
    path = tmp_path / "plan.png"
    assert run("--geometry", SEED, *VERDICTS[kind], "--plot", path)[0] == 0
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG")
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    assert width > 2 * height
    assert len(data) > 40_000


def test_it_imports_nothing_heavy():
    code = (
        "import sys; from island_engine import cli; cli.main(['plan', '--geometry', sys.argv[1], '--json']); "
        "heavy = {'torch', 'sglang', 'numpy', 'matplotlib', 'aiohttp', 'asyncio', 'rich', 'urllib.request'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code, SEED], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "[]"


def test_help_has_an_example(capsys):
    from island_engine import cli

    with pytest.raises(SystemExit) as left:
        cli.main(["plan", "--help"])
    assert left.value.code == 0
    assert "island-engine plan --model" in capsys.readouterr().out.split("example:")[1]
