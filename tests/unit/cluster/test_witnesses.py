"""What the scenarios' witnesses know does not depend on how late they were told of it, or where a stream broke."""

import io
import json

from rich.console import Console

from demo.narrator import Narrator
from demo.observer import Observer
from demo.story import Story
from demo.traffic import Load, Traffic

GATE = {
    "metadata": {
        "name": "gate-1",
        "namespace": "default",
        "uid": "u",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {f"radix-islands.dev/{key}": key for key in ("instance", "role", "revision")},
    },
    "spec": {"containers": [{"name": "engine", "args": ["gate"]}]},
    "status": {
        "phase": "Succeeded",
        "containerStatuses": [
            {"name": "engine", "restartCount": 0, "state": {"terminated": {"finishedAt": "2026-01-01T00:01:40Z"}}}
        ],
    },
}


def test_a_gate_ended_when_its_kubelet_says_so_however_late_the_watch_tells_of_it():
    observer = Observer(None)
    observer._read(iter([json.dumps({"type": "MODIFIED", "object": GATE})]))
    (seen,) = observer.pods.values()
    assert seen.gone == seen.created + 100


def test_a_line_in_which_a_log_breaks_off_is_read_whole_from_the_next_stream():
    first, second = (
        json.dumps({"at": at, "seconds": 1.0, "ok": True, "prompt": 1, "new": 1}) + "\n" for at in (1.0, 2.0)
    )
    traffic = Traffic(None, Load(1, 0.0, (1,), (1, 1), (1, 1), 1))
    traffic._read(iter([first, second[:9]]))
    traffic._read(iter([first, second]))
    assert [request.at for request in traffic.requests] == [1.0, 2.0]


class Kube:
    """One InferenceService whose former pod has not been told to go yet."""

    def get(self, *_):
        return {"metadata": {}, "status": {"revisions": {"active": "new"}}}

    def items(self, *_):
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        return [
            {"metadata": {"uid": name, "labels": {"radix-islands.dev/revision": name}}, "status": ready}
            for name in ("old", "new")
        ]


def test_who_serves_is_who_the_status_calls_active_although_the_others_are_still_ready():
    story = Story(Kube(), Narrator(Console(file=io.StringIO())))
    story.wait("switched", "it is settled", lambda obj: True, 1)
    assert story.outcome.serving == {"switched": {"new"}}
