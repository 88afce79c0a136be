"""The only module that knows kopf: its watches feed cache and queue. No finalizer, no annotation, no state here."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import kopf

from island_operator.cluster.kinds import CHILDREN, INSTANCE, KINDS, WATCHED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from island_operator.cluster.protocol import Credentials
    from island_operator.runtime.feed import Feed


KEPT = "apiVersion", "kind", "metadata"  # of an object that was told


class NoHistory(kopf.DiffBaseStorage):
    """kopf would copy every object several times to find what changed in it since its last event; nobody asks."""

    def build(self, **_: Any) -> Any:
        """Nothing of an object is essential."""
        return {}

    def fetch(self, **_: Any) -> None:
        """Nothing was kept."""

    def store(self, **_: Any) -> None:
        """Nothing is kept."""


class NoProgress(kopf.ProgressStorage):
    """Nor is any handler of ours ever in progress: an event is put into the cache at once."""

    def fetch(self, **_: Any) -> None:
        """Nothing was kept."""

    def store(self, **_: Any) -> None:
        """Nothing is kept."""

    def purge(self, **_: Any) -> None:
        """Nothing was kept."""

    def touch(self, **_: Any) -> None:
        """An object is never written to."""

    def clear(self, *, essence: Any) -> Any:
        """As it is, not copied."""
        return essence


def registry(
    feed: Feed, credentials: Callable[[], Awaitable[Credentials]], seen: Callable[[str], None]
) -> kopf.OperatorRegistry:
    """One handler per watched kind, and our own login: one set of credentials for both clients. `seen(kind)` counts."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.login(registry=handlers)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        ours = await credentials()
        return kopf.ConnectionInfo(
            server=ours.server,
            ca_path=ours.ca_path,
            certificate_path=ours.certificate_path,
            private_key_path=ours.private_key_path,
            token=ours.token,
            insecure=ours.insecure,
        )

    def enqueue(kind: str) -> Callable[..., Awaitable[None]]:
        async def on_event(event: Any, **_: Any) -> None:
            seen(kind)
            feed.event(kind, obj := event["object"], deleted=event["type"] == "DELETED")
            # kopf's body, its patch and their views refer to each other, so they wait for the collector, each with its
            # object: 1.3 MiB a rollout. The cache has a copy; kopf needs no more than the name.
            for part in [name for name in obj if name not in KEPT]:
                del obj[part]
            obj["metadata"].pop("managedFields", None)

        return on_event

    for kind in WATCHED:
        where = KINDS[kind]
        labels = {INSTANCE: kopf.PRESENT} if kind in CHILDREN else None
        kopf.on.event(where.group, where.version, where.plural, registry=handlers, id="enqueue", labels=labels)(
            enqueue(kind)
        )
    return handlers


def settings() -> kopf.OperatorSettings:
    """Child kinds are filtered by the API server; nothing is posted, nothing is scanned, nothing waits long."""
    given = kopf.OperatorSettings()
    given.posting.enabled = False
    given.persistence.diffbase_storage, given.persistence.progress_storage = NoHistory(), NoProgress()
    given.scanning.disabled = True
    given.watching.server_timeout, given.watching.chunk_size = 600, 50  # a page's tasks end while the next is fetched
    given.networking.request_timeout, given.networking.connect_timeout = 30, 10
    given.queueing.idle_timeout, given.queueing.exit_timeout = 0.05, 1.0  # a task per object, soon gone: memory
    for kind in CHILDREN:
        where = KINDS[kind]
        given.watching.label_selectors[where.group, where.version, where.plural] = INSTANCE
    return given


async def watch(handlers: kopf.OperatorRegistry, namespace: str | None, started: Callable[[], None]) -> None:
    """Run kopf until it ends. `started` is called once it has installed its signal handlers, to put ours back.

    At its end kopf waits 5 s for every task born after its start, and cancels it: start all others before.
    """
    others = asyncio.all_tasks()
    where: dict[str, Any] = {"namespaces": [namespace]} if namespace else {"clusterwide": True}
    where["identity"] = socket.gethostname()  # else kopf looks the user up, and a pod's uid is in no passwd file
    tasks = await kopf.spawn_tasks(registry=handlers, settings=settings(), standalone=True, **where)
    started()
    await kopf.run_tasks(tasks, ignored=others)
