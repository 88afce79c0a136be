"""`make demo` and `make demo-scale`: a story on real parts, with a picture at the end. Ctrl-C cleans up."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from demo import environment, picture, scale_picture, summary
from demo.kube import KubectlError
from demo.narrator import Narrator, WaitedTooLongError, fail
from demo.scale import Scale
from demo.story import Story
from demo.telling import SYSTEM

if TYPE_CHECKING:
    from demo.telling import Telling

PICTURES = environment.ROOT / "build" / "demo"
STORIES = {"story": (Story, PICTURES / "timeline.png"), "scale": (Scale, PICTURES / "scale.png")}


def interrupt(*_: object) -> None:
    """SIGTERM ends the demo as Ctrl-C does, and Ctrl-C also where a shell started it in the background."""
    raise KeyboardInterrupt


def main() -> int:
    """Run the demo; 0 when everything it shows came true, 2 when it cannot begin."""
    parser = argparse.ArgumentParser(
        prog="make demo",
        description="From kubectl apply to a coupled rollback, on a real Kubernetes with real SGLang engines.",
        epilog="example: KUBECONFIG_DEMO=~/.kube/config IMAGE_PREFIX=registry.example/islands make demo",
    )
    parser.add_argument(
        "story",
        nargs="?",
        choices=STORIES,
        default="story",
        help="story: a tiny model that computes; scale: production geometry, paced",
    )
    parser.add_argument("--picture", type=Path, metavar="PNG", help="where to draw what happened (default: build/demo)")
    options = parser.parse_args()
    kind, picture_path = STORIES[options.story]
    picture_path = options.picture or picture_path
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, interrupt)
    tell = Narrator()
    story: Telling | None = None
    try:
        theirs = environment.foreign()
        environment.must_be_free()
    except environment.ClusterError as error:
        fail(str(error))
        return 2
    try:
        if theirs is None:
            tell.chapter("Start a cluster")
            tell.say("A real single-node Kubernetes 1.34 with three pretended GPUs, in namespaces of its own.")
        else:
            tell.chapter("Use the cluster of KUBECONFIG_DEMO")
            tell.say(f"What {theirs} points at; it needs three GPUs to spare.")
        story = kind(environment.up(), tell, os.environ.get("IMAGE_PREFIX", "localhost/radix-islands"))
        outcome = story.tell_all()
    except KeyboardInterrupt:
        tell.say("\nInterrupted: taking the cluster down.")
        environment.down()
        return 130
    except (environment.ClusterError, KubectlError, WaitedTooLongError) as error:
        fail(str(error))
        if story is not None:
            tell.say("What stood there at the end:")
            with contextlib.suppress(KubectlError, subprocess.TimeoutExpired):  # it may be the API server that has gone
                tell.show(story.kube, "get", "iisvc,pods,jobs")
        environment.down()
        return 1
    mixed = outcome.mixed
    if isinstance(story, Scale):
        scale_picture.draw(story, picture_path)
        mixed = [pod for pod in mixed if pod.name != story.by_hand]
    else:
        picture.draw(outcome, picture_path)
    summary.show(tell.console, outcome, story.manifest["spec"])
    tell.say(f"\nPicture: {picture_path}")
    environment.keep()
    wrong = len(outcome.failed) + len(mixed)
    tell.say(f"Done in {tell.clock}. The cluster stays up:")
    tell.say(f"  export KUBECONFIG={story.kube.kubeconfig}   # then: kubectl get iisvc -w")
    if theirs is None:
        tell.say("  make cluster-down                  # leaves nothing behind")
    else:
        tell.say(f"  kubectl delete iisvc {story.name} && helm uninstall radix-islands --namespace {SYSTEM}")
    if wrong:
        fail(f"{len(outcome.failed)} requests failed and {len(mixed)} pods were mixed: both must be 0")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
