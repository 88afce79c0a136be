"""The kill switch beside a spec that cannot be served, on a real API server with the operator's process."""

from support.live import HALF, Story

OFF, LEAN = ("off", "0.4", "9984", "8"), ("on", "0.15", "19968", "8")


def test_in_one_patch_with_an_image_that_cannot_be_had_islands_end_first_and_the_image_is_rejected_after(live):
    story = Story(live, gpus=3, islands__enabled=True).serve()
    story.fewest, story.loading = None, True
    begun = story.active
    story.edit(islands__enabled=False, engine__image="nopull:1")
    run = story.until("the switch is thrown", lambda: story.status["run"])
    assert (run["kind"], run["previous"]) == ("KillSwitch", begun)
    calm = story.until(
        "a pod waits for its turn", lambda: "gives up" in (c := story.condition("Progressing"))["message"] and c
    )
    assert calm["reason"] == "Promoting"
    assert "what serves with islands off, before the rest of the spec" in calm["message"]
    live.restart()
    story.loaded()
    story.until("islands have ended", lambda: story.status["islands"]["enabled"] is False)
    story.until("the image is refused", lambda: story.told("RolledBack") == ("True", "ImagePullFailed"))
    story.rest()
    assert story.told("Degraded") == ("True", "ImagePullFailed")
    assert {p["metadata"]["labels"][HALF] for p in story.pods()} == {"stock"}
    assert {p["spec"]["containers"][0]["image"] for p in story.pods()} == {"good:1"}
    assert len(story.ready()) == 2
    assert story.fewest >= 2
    assert story.pairs == {OFF, LEAN}
    story.edit(engine__image="good:2")
    story.serve()
    assert {p["spec"]["containers"][0]["image"] for p in story.pods()} == {"good:2"}
