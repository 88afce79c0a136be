"""The control plane of the integration tests: one real etcd, API server and controller manager for a whole run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.control_plane import ControlPlane

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """Shared by every test of the run that leaves the CRD as it found it; nobody reconciles in it."""
    with ControlPlane() as plane:
        yield plane
