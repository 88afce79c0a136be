"""The adapter against an HTTP server that plays the API server: what goes over the wire, what becomes of refusals."""

import contextlib
import json

import pytest
import yaml
from aiohttp import web

from island_operator.cluster.client import KubernetesCluster
from island_operator.cluster.protocol import ApiError, Listing, Unreachable

PARENT = {
    "kind": "InferenceService",
    "metadata": {"name": "x", "namespace": "ns", "uid": "u", "resourceVersion": "7"},
    "status": {"phase": "Pending", "old": 1, "same": {"a": 1}},
}
JOB = {"kind": "Job", "metadata": {"name": "gate", "namespace": "ns", "uid": "j"}}


class Server:
    """Records requests; answers `reply`."""

    def __init__(self):
        self.requests, self.reply, self.status, self.headers = [], {}, 200, {}

    async def handle(self, request):
        body = await request.text()
        self.requests.append((request.method, request.path_qs, request.headers, json.loads(body) if body else None))
        text = self.reply if isinstance(self.reply, str) else json.dumps(self.reply)
        return web.Response(text=text, status=self.status, content_type="application/json", headers=self.headers)


@contextlib.asynccontextmanager
async def running(tmp_path):
    server, observed = Server(), []
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig))
    cluster = await KubernetesCluster.connect(str(path), lambda *seen: observed.append(seen))
    try:
        yield server, cluster, observed
    finally:
        await cluster.close()
        await runner.cleanup()


async def test_list_takes_only_labelled_children_from_the_watch_cache_and_sets_their_kind(tmp_path):
    async with running(tmp_path) as (server, cluster, _):
        server.reply = {"metadata": {"resourceVersion": "41"}, "items": [{"metadata": {"name": "p"}}]}
        pods = await cluster.list("Pod")
        assert pods == Listing(({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}},), 41)
        await cluster.list("InferenceService", "ns")
        assert [path for _, path, _, _ in server.requests] == [
            "/api/v1/pods?resourceVersion=0&labelSelector=radix-islands.dev/instance",
            "/apis/radix-islands.dev/v1alpha1/namespaces/ns/inferenceservices?resourceVersion=0",
        ]
        assert server.requests[0][2]["Authorization"] == "Bearer secret"


async def test_the_time_is_the_api_servers_also_where_a_client_apart_asked(tmp_path):
    async with running(tmp_path) as (server, cluster, _):
        server.headers = {"Date": "Thu, 01 Jan 2032 12:00:00 GMT"}
        apart = cluster.apart()
        await apart.get("Pod", "ns", "x")
        await apart.close()
        assert cluster.now().year == 2032


async def test_apply_is_server_side_by_force_under_our_name(tmp_path):
    async with running(tmp_path) as (server, cluster, observed):
        await cluster.apply(JOB)
        method, path, headers, body = server.requests[0]
        assert (method, path) == (
            "PATCH",
            "/apis/batch/v1/namespaces/ns/jobs/gate?fieldManager=radix-islands&force=true",
        )
        assert headers["Content-Type"] == "application/apply-patch+yaml"
        assert body == JOB
        assert observed == [("apply", "Job", 200)]


async def test_a_status_patch_holds_only_the_difference_and_is_bound_to_what_we_saw(tmp_path):
    async with running(tmp_path) as (server, cluster, observed):
        await cluster.patch_status(PARENT, {"phase": "Stable", "same": {"a": 1}})
        _, path, headers, body = server.requests[0]
        assert path.split("?")[0].endswith("/namespaces/ns/inferenceservices/x/status")
        assert headers["Content-Type"] == "application/merge-patch+json"
        assert body == {"metadata": {"uid": "u", "resourceVersion": "7"}, "status": {"phase": "Stable", "old": None}}
        assert observed == [("patch", "InferenceService/status", 200)]


async def test_delete_names_the_very_object_and_gone_already_is_success(tmp_path):
    async with running(tmp_path) as (server, cluster, _):
        await cluster.delete(JOB)
        assert server.requests[0][3] == {"propagationPolicy": "Background", "preconditions": {"uid": "j"}}
        for server.status in (404, 409):
            await cluster.delete(JOB)
        server.status = 403
        with pytest.raises(ApiError):
            await cluster.delete(JOB)


async def test_a_refusal_is_the_api_servers_sentence_bounded(tmp_path):
    async with running(tmp_path) as (server, cluster, observed):
        server.status, server.reply = 422, {"kind": "Status", "message": "spec.x: Required\n value " + "y" * 9999}
        with pytest.raises(ApiError) as refusal:
            await cluster.apply(JOB)
        assert str(refusal.value).startswith("spec.x: Required value yyy")
        assert len(str(refusal.value)) == 600
        assert refusal.value.refused
        server.status, server.reply = 502, "<html>bad gateway</html>"
        with pytest.raises(ApiError, match="bad gateway") as passing:
            await cluster.apply(JOB)
        assert not passing.value.refused
        assert [status for _, _, status in observed] == [422, 502]


async def test_get_of_nothing_is_none(tmp_path):
    async with running(tmp_path) as (server, cluster, _):
        server.status = 404
        assert await cluster.get("Lease", "ns", "x") is None


async def test_a_log_is_the_end_of_what_the_container_said_and_bounded(tmp_path):
    async with running(tmp_path) as (server, cluster, observed):
        server.reply = "gate 1 s\nPASS\n"
        assert await cluster.log("ns", "gate-x", "engine") == server.reply
        assert server.requests[0][1] == (
            "/api/v1/namespaces/ns/pods/gate-x/log?container=engine&tailLines=4000&limitBytes=1048576"
        )
        server.status, server.reply = 400, {"message": "pod gate-x does not have a host assigned"}
        with pytest.raises(ApiError, match="does not have a host"):
            await cluster.log("ns", "gate-x", "engine")
        assert observed == [("get", "Pod/log", 200), ("get", "Pod/log", 400)]


async def test_no_answer_is_unreachable_and_observed_as_such(tmp_path):
    async with running(tmp_path) as (_, cluster, observed):
        cluster._configuration.host = "http://127.0.0.1:1"
        with pytest.raises(Unreachable, match="Cannot connect"):
            await cluster.get("Lease", "ns", "x")
        assert observed == [("get", "Lease", 0)]


async def test_a_page_of_html_is_no_answer(tmp_path):
    """Of a proxy that says 200: no traceback for a person, and no end of the operator's watches."""
    async with running(tmp_path) as (server, cluster, _):
        server.reply = "<html>\nPlease log in" + "." * 999
        with pytest.raises(Unreachable, match="no API server: <html> Please log in") as told:
            await cluster.list("Pod")
        assert len(str(told.value)) < 150


async def test_kopf_gets_the_same_credentials(tmp_path):
    async with running(tmp_path) as (_, cluster, _):
        ours = await cluster.credentials()
        assert (ours.token, ours.insecure) == ("secret", False)
        assert ours.server == cluster._configuration.host


async def test_a_kubeconfig_that_is_not_there_or_not_one_is_one_sentence(tmp_path):
    for content in (None, "not: a kubeconfig", "{", "", "[]", "text"):
        path = tmp_path / "kubeconfig"
        if content is not None:
            path.write_text(content)
        with pytest.raises(ValueError, match=r"^no cluster from .*kubeconfig: .*--kubeconfig$"):
            await KubernetesCluster.connect(str(path))


async def test_a_person_names_context_and_instance_and_signs_as_somebody_else(tmp_path):
    async with running(tmp_path) as (server, _, _):
        path = tmp_path / "kubeconfig"
        config = yaml.safe_load(path.read_text())
        config["contexts"].append({"name": "other", "context": {"cluster": "c", "user": "u", "namespace": "models"}})
        path.write_text(yaml.safe_dump(config))
        person = await KubernetesCluster.connect(str(path), context="other", agent="kubectl-island")
        try:
            server.reply = {"metadata": {"resourceVersion": "41"}, "items": []}
            await person.list("Pod", person.namespace, instance="x")
            await person.patch("InferenceService", "models", "x", {})
        finally:
            await person.close()
        labels = "resourceVersion=0&labelSelector=radix-islands.dev/instance%3Dx"
        assert server.requests[0][1] == f"/api/v1/namespaces/models/pods?{labels}"
        assert server.requests[1][1].endswith("/inferenceservices/x?fieldManager=kubectl-island")
        assert {headers["User-Agent"] for _, _, headers, _ in server.requests} == {"kubectl-island"}
        with pytest.raises(ValueError, match="with name nowhere"):
            await KubernetesCluster.connect(str(path), context="nowhere")


async def test_a_proxy_of_the_environment_is_used_except_where_it_says_not_to(tmp_path, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.delenv("no_proxy", raising=False)
    async with running(tmp_path) as (_, cluster, _):
        with pytest.raises(Unreachable):
            await cluster.get("Pod", "ns", "x")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    async with running(tmp_path) as (server, cluster, _):
        await cluster.get("Pod", "ns", "x")
        assert len(server.requests) == 1


async def test_somebodys_netrc_is_not_read(tmp_path, monkeypatch):
    """aiohttp would look there at every request, and refuse to send a token beside what it finds."""
    netrc = tmp_path / "netrc"
    netrc.write_text("default login me password mine\n")
    monkeypatch.setenv("NETRC", str(netrc))
    async with running(tmp_path) as (server, cluster, _):
        await cluster.get("Pod", "ns", "x")
        assert server.requests[0][2]["Authorization"] == "Bearer secret"
