"""The few calls on the API server that bringing a node up needs, over the port that users get. kubectl takes half a
second of CPU to start, and we ask often.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import ssl
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PLURALS = {
    "ServiceAccount": "serviceaccounts",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "ConfigMap": "configmaps",
    "Deployment": "deployments",
    "Service": "services",
}


class ApiError(Exception):
    """The API server answered with an error status."""


@dataclass(frozen=True)
class Api:
    """A client by certificate. `kubeconfig` is one that kubeadm wrote, or ours made of it."""

    kubeconfig: Path
    port: int

    def _context(self) -> ssl.SSLContext:
        text = self.kubeconfig.read_text()
        ca, certificate, private = (
            base64.b64decode(re.findall(rf"{field}: (\S+)", text)[0])
            for field in ("certificate-authority-data", "client-certificate-data", "client-key-data")
        )
        context = ssl.create_default_context(cadata=ca.decode())
        with tempfile.NamedTemporaryFile() as pair:  # the ssl module reads a key only from a file; this one is 0600
            pair.write(certificate + private)
            pair.flush()
            context.load_cert_chain(pair.name)
        return context

    def call(self, method: str, path: str, body: object = None, content: str = "application/json") -> Any:
        """The decoded answer; ApiError with the server's words for a status of 400 and above, OSError for no answer."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=10, context=self._context())
        try:
            payload = None if body is None else json.dumps(body)
            connection.request(method, path, payload, {"Content-Type": content})
            answer = connection.getresponse()
            text = answer.read().decode()
        except http.client.HTTPException as error:
            raise OSError(str(error)) from error
        finally:
            connection.close()
        if answer.status >= 400:
            raise ApiError(f"{method} {path}: {answer.status} {text[:300]}")
        return json.loads(text) if text.startswith("{") else text

    def apply(self, obj: dict[str, Any]) -> None:
        """Server-side apply, as field manager `cluster-up`."""
        meta = obj["metadata"]
        group = obj["apiVersion"]
        root = f"/apis/{group}" if "/" in group else f"/api/{group}"
        space = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
        path = f"{root}{space}/{PLURALS[obj['kind']]}/{meta['name']}?fieldManager=cluster-up&force=true"
        self.call("PATCH", path, obj, "application/apply-patch+yaml")

    def until(self, what: str, test: Callable[[], bool], patience: float, on_timeout: Callable[[], str]) -> None:
        """Ask every 0.1 s until `test` holds; after `patience` s, ClusterError with `what` and on_timeout()'s words."""
        deadline = time.monotonic() + patience
        last = ""
        while True:
            try:
                if test():
                    return
            except (OSError, ApiError) as error:
                last = str(error)
            if time.monotonic() > deadline:
                raise ClusterError(f"{what} did not come up in {patience:.0f} s: {on_timeout() or last}")
            time.sleep(0.1)
