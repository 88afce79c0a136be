"""The operator's process on a control plane of its own, shared by the tests that bring a namespace each."""

import pytest
from support.control_plane import ControlPlane
from support.live import Live


@pytest.fixture(scope="session")
def live():
    with ControlPlane() as plane:
        running = Live(plane)
        try:
            yield running
        finally:
            running.close()
