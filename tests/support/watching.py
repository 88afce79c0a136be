"""A plain watch, for tests and benches that look at the cluster from outside of the operator and without kopf."""

import asyncio
import contextlib
import json
import time

import aiohttp
from kubernetes.aio.config import kube_config

from island_operator.cluster.client import MERGE, KubernetesCluster
from island_operator.cluster.kinds import INSTANCE, KINDS, PARENT
from island_operator.cluster.protocol import ApiError, Unreachable

FOREVER = aiohttp.ClientTimeout(total=None, sock_connect=5)


async def eventually(what, check, within=60.0, every=0.05):
    """Wait until `check()` (a plain function) is true, and return what it returned. `what` is a text, or makes one."""
    end = time.monotonic() + within
    while not (found := check()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {within:.0f} s: {what if isinstance(what, str) else what()}")
        await asyncio.sleep(every)  # others tell of it in no event of ours
    return found


async def connect(kubeconfig, cluster=KubernetesCluster):
    """One more client of this process."""
    kube_config._temp_files.clear()  # it remembers inline certificates in files of clients that were closed since
    return await cluster.connect(str(kubeconfig))


async def watch(cluster, kind, see):
    """Until cancelled: `see(object, deleted)` for all there are and every event after; anew when the watch ends."""
    known = {}
    while True:
        with contextlib.suppress(ApiError, Unreachable, aiohttp.ClientError, ConnectionError, TimeoutError):
            listing = await cluster.list(kind)
            there = {item["metadata"]["uid"]: item for item in listing.items}
            for gone in known.keys() - there.keys():
                see(known[gone], True)
            for item in listing.items:
                see(item, False)
            known = there
            ours = "" if kind == PARENT else f"&labelSelector={INSTANCE}"
            path = f"{KINDS[kind].path()}?watch=1&resourceVersion={listing.version}{ours}"
            headers = {"Authorization": token} if (token := await cluster._token()) else {}
            session = cluster._api.rest_client.pool_manager
            url = cluster._configuration.host + path
            async with session.get(url, headers=headers, timeout=FOREVER, read_bufsize=2**22) as reply:
                async for line in reply.content:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        break
                    seen, deleted = {**event["object"], "kind": kind}, event["type"] == "DELETED"
                    see(seen, deleted)
                    known.pop(seen["metadata"]["uid"], None)
                    if not deleted:
                        known[seen["metadata"]["uid"]] = seen
        await asyncio.sleep(0.2)


async def set_status(cluster, kind, obj, status):
    """A merge patch of the status, as the controller or kubelet that owns it would."""
    meta = obj["metadata"]
    body = {"metadata": {"uid": meta["uid"]}, "status": status}
    return await cluster._call("patch", kind, meta["namespace"], meta["name"], "status", body=body, content=MERGE)
