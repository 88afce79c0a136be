"""What goes wrong in the first ten minutes, on real kubelets: each is named in the status and takes nothing down."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from demo.kube import KubectlError
from demo.story import Story
from demo.telling import condition, settled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from demo.kube import Kube, Object


@pytest.fixture
def make(kube: Kube, story: Story) -> Iterator[Callable[..., str]]:
    """Apply the example under another name with a change to its spec; deleted at the end."""
    made: list[str] = []
    kube.run("patch", "iisvc", story.name, "--type", "merge", "-p", '{"spec":{"replicas":1}}')  # give GPUs to these

    def apply(name: str, change: Callable[[dict[str, Any]], None]) -> str:
        text = Story.example.read_text().replace("localhost/radix-islands", story.prefix)
        obj: dict[str, Any] = yaml.safe_load(text)
        obj["metadata"]["name"] = name
        obj["spec"]["replicas"] = 1
        change(obj["spec"])
        made.append(name)
        kube.apply(yaml.safe_dump(obj))
        return name

    yield apply
    for name in made:
        kube.run("delete", "iisvc", name, "--ignore-not-found", "--wait=false")


def until(kube: Kube, name: str, look: Callable[[Object], bool], seconds: float) -> Object:
    """The object once `look` holds; AssertionError with the last status otherwise."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        obj = kube.get("iisvc", name)
        if obj.get("status") and look(obj):
            return obj
        time.sleep(0.5)
    raise AssertionError(f"not within {seconds} s: {obj.get('status')}")


def says(words: str, *, ready: str = "False") -> Callable[[Object], bool]:
    """Some condition's message holds the words, while Ready is as given."""

    def look(obj: Object) -> bool:
        messages = [c.get("message", "") for c in obj["status"].get("conditions", ())]
        return condition(obj["status"], "Ready").get("status") == ready and any(words in m for m in messages)

    return look


def test_model_path_that_is_not_there(kube: Kube, make: Callable[..., str]) -> None:
    name = make("no-model", lambda s: s["model"]["source"].update(hostPath="/opt/radix-islands/models/not-there"))
    until(kube, name, says("/opt/radix-islands/models/not-there"), 90)


def test_engine_that_dies_at_boot_says_its_last_line(kube: Kube, make: Callable[..., str]) -> None:
    name = make("dies", lambda s: s["engine"].update(args=["--no-such-flag"]))
    until(kube, name, says("--no-such-flag"), 120)


def test_image_that_cannot_be_pulled(kube: Kube, make: Callable[..., str]) -> None:
    name = make("no-image", lambda s: s["engine"].update(image="localhost/radix-islands/not-there:dev"))
    until(kube, name, says("localhost/radix-islands/not-there:dev"), 90)


def test_row_30_a_load_that_outlasts_the_liveness_probe_is_not_killed(kube: Kube, make: Callable[..., str]) -> None:
    """Of a probe that allows three seconds; the product's allows two minutes, and no scenario has twenty."""
    patience = {"periodSeconds": 1, "failureThreshold": 3}

    def impatient(spec: dict[str, Any]) -> None:
        spec["podTemplate"]["spec"]["containers"][0]["livenessProbe"] = patience

    name = make("slow", impatient)
    until(kube, name, lambda obj: condition(obj["status"], "Ready").get("status") == "True", 180)
    (pod,) = kube.items("pods", f"radix-islands.dev/instance={name}")
    (container,) = pod["status"]["containerStatuses"]
    assert patience.items() <= pod["spec"]["containers"][0]["livenessProbe"].items()
    began = datetime.fromisoformat(container["state"]["running"]["startedAt"])
    ready = datetime.fromisoformat(condition(pod["status"], "Ready")["lastTransitionTime"])
    assert (ready - began).total_seconds() > patience["periodSeconds"] * patience["failureThreshold"]
    assert container["restartCount"] == 0


def test_no_gpu_left_is_named(kube: Kube, make: Callable[..., str]) -> None:
    name = make(
        "greedy",
        lambda s: s["accelerator"].update(count=16) if "accelerator" in s else s.update(accelerator={"count": 16}),
    )
    named = says("nvidia.com/gpu")
    until(kube, name, lambda o: named(o) and "InsufficientGPU" in {c["reason"] for c in o["status"]["conditions"]}, 60)


def test_bad_changes_of_a_serving_object_lose_nothing(kube: Kube, story: Story) -> None:
    before = kube.get("iisvc", story.name)
    pods = {p["metadata"]["uid"] for p in kube.items("pods", f"radix-islands.dev/instance={story.name}")}
    for patch, words in (
        ({"partition": {"islands": {"maxTotalTokens": 64}}}, "maxTotalTokens"),
        ({"partition": {"stock": {"swaFullTokensRatio": "0.01"}}}, "swaFullTokensRatio"),
        ({"engine": {"args": ["--swa-full-tokens-ratio=0.3"]}}, "--swa-full-tokens-ratio"),
        ({"engine": {"args": ["--max-total", "5"]}}, "--max-total"),
        (
            {"engine": {"env": [{"name": "SGLANG_OPT_RELEASE_PREFILL_SWA", "value": "1"}]}},
            "SGLANG_OPT_RELEASE_PREFILL_SWA",
        ),
    ):
        with pytest.raises(KubectlError) as refused:
            kube.patch(story.name, {"spec": patch})
        assert words in str(refused.value), refused.value
    misspelt = {"apiVersion": before["apiVersion"], "kind": before["kind"], "metadata": {"name": story.name}}
    misspelt["spec"] = {**before["spec"], "island": {"enabled": True}}
    with pytest.raises(KubectlError, match=r"\.spec\.island: field not declared in schema"):
        kube.apply(yaml.safe_dump(misspelt))
    after = kube.get("iisvc", story.name)
    assert after["spec"] == before["spec"]
    assert settled(after)
    assert {p["metadata"]["uid"] for p in kube.items("pods", f"radix-islands.dev/instance={story.name}")} == pods
