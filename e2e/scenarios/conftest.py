"""One cluster for all scenarios of a run, one telling of the demo's story, and room for objects of their own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from demo import environment, picture, scale_picture
from demo.narrator import Narrator
from demo.scale import Scale
from demo.story import Story
from scenarios.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Iterator

    from demo.kube import Kube
    from demo.telling import Outcome

REPORT = environment.ROOT / "build" / "e2e"
PREFIX = os.environ.get("IMAGE_PREFIX", "localhost/radix-islands")


@pytest.fixture(scope="session")
def kube() -> Iterator[Kube]:
    """The cluster of e2e/cluster, tied to this process; the whole run shares it, and a witness watches all of it."""
    cluster = environment.up()
    witness = Witness(cluster)
    witness.start()
    yield cluster
    witness.stop()
    environment.down()
    assert witness.judged, "the witness saw no engine pod: it was blind"
    assert witness.mixed == []
    assert witness.torn == {}


@pytest.fixture(scope="session")
def scale(kube: Kube) -> Scale:
    """The story at production geometry, told once into build/e2e/scale.txt."""
    REPORT.mkdir(parents=True, exist_ok=True)
    with Path(REPORT / "scale.txt").open("w") as file:
        told = Scale(kube, Narrator(Console(file=file, width=160)), PREFIX)
        told.tell_all()
    scale_picture.draw(told, REPORT / "scale.png")
    return told


@pytest.fixture(scope="session")
def story(kube: Kube) -> Iterator[Story]:
    """The demo's story, told once into build/e2e/story.txt."""
    REPORT.mkdir(parents=True, exist_ok=True)
    with Path(REPORT / "story.txt").open("w") as file:
        told = Story(kube, Narrator(Console(file=file, width=160)), PREFIX)
        told.tell_all()
    picture.draw(told.outcome, REPORT / "timeline.png")
    yield told
    kube.run("delete", "iisvc", told.name, "--ignore-not-found", "--cascade=foreground", "--timeout=150s", timeout=160)


@pytest.fixture(scope="session")
def outcome(story: Story) -> Outcome:
    """What happened in the story."""
    return story.outcome
