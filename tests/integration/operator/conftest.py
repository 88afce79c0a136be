"""The operator's process on a control plane of its own, shared by the tests that bring a namespace each."""

import signal

import pytest
from support.control_plane import ControlPlane
from support.live import Live

# A shell that starts us in the background has it ignored, and so has every program that a test ends as Ctrl-C does.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def live():
    with ControlPlane() as plane:
        running = Live(plane)
        try:
            yield running
        finally:
            running.close()
