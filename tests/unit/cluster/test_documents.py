"""What the witnesses of scenarios make of kubectl's watches: every object, and nothing else that the stream says."""

import json

import pytest

from demo.kube import documents
from scenarios.witness import Witness

OBJECT = {"kind": "InferenceService", "metadata": {"namespace": "default", "name": "gemma"}}
OTHERS = [
    {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 410, "reason": "Expired"},
    {"kind": "List", "apiVersion": "v1", "items": [], "metadata": {"resourceVersion": ""}},
    {"kind": "Status", "apiVersion": "v1", "message": "too many requests", "code": 429},
]


@pytest.mark.parametrize("indent", [None, 4])
@pytest.mark.parametrize("event", [False, True])
def test_objects_are_told_and_what_ends_a_watch_is_not(indent, event):
    said = [OBJECT, *OTHERS, OBJECT | {"spec": {}}]
    wanted = [said[0], said[-1]]
    if event:
        said, wanted = ([{"type": "ADDED", "object": one} for one in many] for many in (said, wanted))
    text = "".join(json.dumps(one, indent=indent) + "\n" for one in said)
    assert [*documents(iter(text.splitlines(keepends=True)))] == wanted


def test_the_witness_goes_on_behind_a_watch_that_ends():
    """As it did when the kind was installed while it began to watch."""
    spec = {"partition": {"islands": {"swaFullTokensRatio": "0.1", "maxTotalTokens": 64}}}
    witness = Witness(None)
    witness._read(iter([json.dumps(OTHERS[0]), json.dumps(OBJECT | {"spec": spec})]))
    assert witness.offered == {"default/gemma": {(True, "0.1", 64)}}
