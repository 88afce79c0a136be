"""What the runtime needs of a cluster. The adapter in client.py speaks to an API server; fake.py serves unit tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from datetime import datetime

    from island_operator.core.model import Object


LOG_BYTES = 1024 * 1024  # of a container's log that are ever read


class ApiError(Exception):
    """The API server answered, and the answer was no. `str()` is its own sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    @property
    def refused(self) -> bool:
        """The object itself is at fault, or a right is missing: trying the same again is not likely to help.

        500 is among them: so does server-side apply answer to a quantity that is none, or to a name twice in `env`.
        """
        return self.status in {400, 403, 404, 405, 413, 422, 500}


class NameTaken(ApiError):  # noqa: N818 - reads as a state of the cluster, which it is
    """A child cannot be made: somebody else's object has its name."""

    refused = True


class Unreachable(Exception):  # noqa: N818 - reads as a state of the cluster, which it is
    """No answer: connection refused, reset or timed out."""


@dataclass(frozen=True)
class Credentials:
    """How to reach the API server, for kopf's own connections. Paths are files; the token has no scheme."""

    server: str
    ca_path: str | None = None
    certificate_path: str | None = None
    private_key_path: str | None = None
    token: str | None = None
    insecure: bool = False


@dataclass(frozen=True)
class Listing:
    """Every object of a kind as of one resourceVersion."""

    items: tuple[Object, ...]
    version: int


class Cluster(Protocol):
    """Reads and writes of plain dicts. Every method raises ApiError or Unreachable."""

    def now(self) -> datetime:
        """The API server's time, in UTC: of the same clock as the stamps in its objects."""

    async def list(self, kind: str, namespace: str | None = None) -> Listing:
        """Every object of a kind (children: only those labelled as such), `kind` set on each."""

    async def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """One object, or None."""

    async def apply(self, wanted: Object) -> Object:
        """Server-side apply under our field manager, by force. Returns the object as it is now."""

    async def patch_status(self, parent: Object, status: Object) -> Object:
        """Make the status equal `status`; refused with 409 when the object is no longer the one in `parent`."""

    async def patch(self, kind: str, namespace: str, name: str, body: Object) -> Object:
        """A JSON merge patch (RFC 7386)."""

    async def create(self, body: Object) -> Object:
        """POST; 409 when it exists."""

    async def log(self, namespace: str, pod: str, container: str) -> str:
        """The last of what a container said, at most about LOG_BYTES."""

    async def replace(self, body: Object) -> Object:
        """PUT; 409 when its resourceVersion is not the current one."""

    async def delete(self, child: Object) -> None:
        """Delete that very object (by uid), its dependents in the background. Gone already is success."""
