"""The adapter: kubernetes.aio's REST client with plain dicts. No generated model is ever imported (memory, drift)."""

from __future__ import annotations

import json
import os
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import yaml
from kubernetes.aio import client, config

from island_operator.cluster.clock import Clock
from island_operator.cluster.kinds import CHILDREN, FIELD_MANAGER, INSTANCE, KINDS, PARENT
from island_operator.cluster.merge import difference
from island_operator.cluster.protocol import LOG_BYTES, ApiError, Credentials, Listing, Unreachable
from island_operator.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from island_operator.core.model import Object

TIMEOUT = aiohttp.ClientTimeout(total=15, sock_connect=5)
LONGEST_REFUSAL = 600  # characters of the API server's own sentence that we keep
LOG_LINES = 4000  # of a container's log, the last
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"


class KubernetesCluster:
    """One API server. `observe(verb, kind, status)` is told of every request (status 0: no answer)."""

    def __init__(
        self,
        configuration: Any,
        observe: Callable[[str, str, int], None],
        scratch: ExitStack,
        agent: str = FIELD_MANAGER,
        namespace: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or Clock()
        self._configuration, self._observe, self._scratch, self._agent = configuration, observe, scratch, agent
        # The environment is read once: aiohttp would look for ~/.netrc and a proxy in two threads at every request.
        configuration.client_session_kwargs = {"trust_env": False}
        configuration.proxy = configuration.proxy or _proxy(configuration.host)
        self._api = client.ApiClient(configuration)
        self.namespace = namespace  # of the kubeconfig's context; None: it names none

    @classmethod
    async def connect(
        cls,
        kubeconfig: str | None = None,
        observe: Callable[[str, str, int], None] = lambda *_: None,
        *,
        context: str | None = None,
        agent: str = FIELD_MANAGER,
    ) -> KubernetesCluster:
        """From a kubeconfig file: the one given, else $KUBECONFIG, else the pod's service account, else ~/.kube/config.

        `agent` signs requests and patches. Raises ValueError (one sentence) when none of them can be used.
        """
        configuration, namespace = client.Configuration(), None
        file = kubeconfig or os.environ.get("KUBECONFIG")
        with ExitStack() as scratch:
            try:
                if not (file or context) and os.environ.get("KUBERNETES_SERVICE_HOST"):
                    config.load_incluster_config(client_configuration=configuration)
                else:
                    _must_exist(file or "~/.kube/config")
                    # its inline certificates become files; a service account's are files already
                    folder = scratch.enter_context(tempfile.TemporaryDirectory(prefix="island-operator-"))
                    loader = await config.load_kube_config(
                        file,
                        context=context,
                        client_configuration=configuration,
                        persist_config=False,
                        temp_file_path=folder,
                    )
                    namespace = loader.current_context["context"].get("namespace")
            except (config.ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, AttributeError) as error:
                source, why = file or "the service account or ~/.kube/config", " ".join(str(error).split())
                raise ValueError(f"no cluster from {source}: {why}; give a kubeconfig with --kubeconfig") from error
            return cls(configuration, observe, scratch.pop_all(), agent, namespace)

    def apart(self) -> KubernetesCluster:
        """The same API server over connections of its own, which no other request keeps busy or leaves behind idle."""
        scratch, agent = ExitStack(), self._agent
        return KubernetesCluster(self._configuration, self._observe, scratch, agent, self.namespace, self._clock)

    async def list(self, kind: str, namespace: str | None = None, *, instance: str | None = None) -> Listing:
        """From the API server's watch cache (resourceVersion=0), which costs it nothing; `instance`: children of that
        InferenceService alone.
        """
        labels = f"{INSTANCE}={instance}" if instance else INSTANCE
        query = {"resourceVersion": "0", **({"labelSelector": labels} if kind in CHILDREN else {})}
        found = await self._call("list", kind, namespace, query=query)
        items = ({"apiVersion": KINDS[kind].api_version, "kind": kind, **item} for item in found["items"])
        return Listing(tuple(items), int(found["metadata"]["resourceVersion"]))

    async def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """One object, or None."""
        try:
            return await self._call("get", kind, namespace, name)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def apply(self, wanted: Object) -> Object:
        """Server-side apply, by force: what we say is ours."""
        meta, query = wanted["metadata"], {"fieldManager": FIELD_MANAGER, "force": "true"}
        return await self._call(
            "apply", wanted["kind"], meta["namespace"], meta["name"], body=wanted, query=query, content=APPLY
        )

    async def patch_status(self, parent: Object, status: Object) -> Object:
        """A minimal merge patch. The resourceVersion makes it conditional: a stale decision is never recorded."""
        meta = parent["metadata"]
        body = {
            "metadata": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]},
            "status": difference(parent.get("status") or {}, status),
        }
        query = {"fieldManager": f"{FIELD_MANAGER}-status"}
        return await self._call(
            "patch", PARENT, meta["namespace"], meta["name"], "status", body=body, query=query, content=MERGE
        )

    async def patch(self, kind: str, namespace: str, name: str, body: Object) -> Object:
        """A merge patch of the object itself."""
        query = {"fieldManager": self._agent}
        return await self._call("patch", kind, namespace, name, body=body, query=query, content=MERGE)

    async def create(self, body: Object) -> Object:
        """POST."""
        return await self._call("create", body["kind"], body["metadata"]["namespace"], body=body)

    async def log(self, namespace: str, pod: str, container: str) -> str:
        """The kubelet's, by way of the API server. Of so many lines the last, as long as they are not endless ones."""
        query = {"container": container, "tailLines": str(LOG_LINES), "limitBytes": str(LOG_BYTES)}
        raw = await self.request("get", KINDS["Pod"].path(namespace, pod, "log"), "Pod/log", query=query)
        return raw.decode(errors="replace")

    async def replace(self, body: Object) -> Object:
        """PUT, guarded by the resourceVersion in the body."""
        meta = body["metadata"]
        query = {"fieldManager": FIELD_MANAGER}
        return await self._call("update", body["kind"], meta["namespace"], meta["name"], body=body, query=query)

    async def delete(self, child: Object) -> None:
        """Background propagation; a child of the same name but another uid is left alone."""
        meta = child["metadata"]
        body = {"propagationPolicy": "Background", "preconditions": {"uid": meta["uid"]}}
        try:
            await self._call("delete", child["kind"], meta["namespace"], meta["name"], body=body)
        except ApiError as error:
            if error.status not in {404, 409}:
                raise

    async def credentials(self) -> Credentials:
        """What kopf needs to open its own connections; read anew, because service account tokens are rotated."""
        given, token = self._configuration, await self._token()
        return Credentials(
            server=given.host,
            ca_path=given.ssl_ca_cert or None,
            certificate_path=given.cert_file or None,
            private_key_path=given.key_file or None,
            token=token.split(" ", 1)[1] if token else None,
            insecure=not given.verify_ssl,
        )

    def now(self) -> datetime:
        """See Cluster."""
        return self._clock.now()

    @property
    def host(self) -> str:
        """The API server's URL."""
        return str(self._configuration.host)

    async def close(self) -> None:
        """Close the connections and remove the scratch files."""
        await self._api.close()
        self._scratch.close()

    async def _token(self) -> str:
        """`Bearer <token>`, or nothing when a client certificate says who we are."""
        setting = (await self._configuration.auth_settings()).get("BearerToken") or {}
        words = str(setting.get("value") or "").split()
        return f"Bearer {words[-1]}" if words else ""

    async def _call(
        self,
        verb: str,
        kind: str,
        namespace: str | None,
        name: str = "",
        subresource: str = "",
        *,
        body: Object | None = None,
        query: dict[str, str] | None = None,
        content: str = "application/json",
    ) -> Object:
        path = KINDS[kind].path(namespace, name, subresource)
        what = f"{kind}/{subresource}" if subresource else kind
        return parsed(await self.request(verb, path, what, body=body, query=query, content=content))

    async def request(
        self,
        verb: str,
        path: str,
        what: str,
        *,
        body: Object | None = None,
        query: dict[str, str] | None = None,
        content: str = "application/json",
    ) -> bytes:
        """The answer to one request, whatever it is; `what` tells `observe` what it was about."""
        url = self.host + path + (f"?{urlencode(query)}" if query else "")
        headers = {"Content-Type": content, "Accept": "application/json, */*", "User-Agent": self._agent}
        if token := await self._token():
            headers["Authorization"] = token
        status, began = 0, time.monotonic()
        try:
            reply = await self._api.rest_client.request(
                METHODS[verb], url, headers=headers, body=body, _request_timeout=TIMEOUT
            )
            self._clock.heard(reply.headers.get("Date"), time.monotonic() - began)
            raw: bytes = await reply.read()
            status = reply.status
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"{type(error).__name__} {error}".strip()) from error
        finally:
            self._observe(verb, what, status)
        if status >= 400:
            raise ApiError(status, _sentence(raw))
        return raw


METHODS = {
    "get": "GET",
    "list": "GET",
    "create": "POST",
    "update": "PUT",
    "delete": "DELETE",
    "apply": "PATCH",
    "patch": "PATCH",
}


def _proxy(server: str) -> str | None:
    """What HTTPS_PROXY and NO_PROXY say of the API server."""
    url = urlsplit(server)
    return None if proxy_bypass(url.netloc) else getproxies().get(url.scheme)


def _must_exist(paths: str) -> None:
    """kubernetes.aio takes a kubeconfig that is not there for an empty one."""
    if not any(Path(path).expanduser().is_file() for path in paths.split(os.pathsep)):
        raise FileNotFoundError("no such file")


def parsed(raw: bytes) -> Object:
    """The object that was answered. Unreachable: a login page, or a load balancer that says 200 to everything."""
    answer = None
    with suppress(ValueError, RecursionError):
        answer = json.loads(raw)
    if not isinstance(answer, dict):
        raise Unreachable(f"what answers there is no API server: {escaped(_sentence(raw), 80)}")
    return answer


def _sentence(raw: bytes) -> str:
    """The message of a Kubernetes Status, or whatever a proxy said instead; never longer than LONGEST_REFUSAL."""
    text = raw.decode(errors="replace")
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        text = str(json.loads(text)["message"])
    return " ".join(text.split())[:LONGEST_REFUSAL]
