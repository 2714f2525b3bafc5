"""`metrics.k8s.io` of a real API server, whose nodes' agents have set totals."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from moorage.cluster.access.identities import Subject
from tests.apiserver.endpoints.resource_metrics.summaries import summary
from tests.apiserver.running_server import Running, serving

ROOT = "/apis/metrics.k8s.io/v1beta1"
MERGE = "application/merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


class Measured:
    """An API server with a node `n1`, whose agent reports what `pods` says."""

    def __init__(self, server: Running) -> None:
        self.server = server
        self.pods: dict[str, dict[str, tuple[float, int]]] = {}
        self.reads = 0

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """Report CPU times that grow by the CPUs of `pods`, 3 of the node."""
        assert request.path == "/stats/summary"
        self.reads += 1
        now_ns = time.monotonic_ns()
        totals: dict[str, dict[str, tuple[int | None, int | None]]] = {
            uid: {name: (int(cpus * now_ns), memory) for name, (cpus, memory) in used.items()}
            for uid, used in self.pods.items()
        }
        return web.Response(body=summary((3 * now_ns, 4096), **totals))

    async def create(self, path: str, obj: dict[str, Any], status: dict[str, Any]) -> str:
        """Create an object with a status; return its UID."""
        created = await self.server.ask("POST", path, obj)
        assert created.status == 201, created.text
        place = f"{path}/{obj['metadata']['name']}/status"
        patched = await self.server.ask("PATCH", place, {"status": status}, Content_Type=MERGE)
        assert patched.status == 200, patched.text
        return str(created.json["metadata"]["uid"])

    async def add_pod(
        self, name: str, used: dict[str, tuple[float, int]], phase: str = "Running"
    ) -> None:
        spec = {"nodeName": "n1", "containers": [{"name": one, "image": "i"} for one in used]}
        pod = {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec}
        uid = await self.create("/api/v1/namespaces/default/pods", pod, {"phase": phase})
        self.pods[uid] = used

    async def read(self, path: str, **headers: str) -> Any:
        answer = await self.server.ask("GET", ROOT + path, **headers)
        assert answer.status == 200, answer.text
        return answer.json


@pytest.fixture
async def measured(tmp_path: Path) -> AsyncIterator[Measured]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(tmp_path))
        measured = Measured(server)
        pair = server.authority.issue("agent", Subject("system:node:n1", hosts=("127.0.0.1",)))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(pair.certificate, pair.key)
        runner = web.ServerRunner(web.Server(measured.handle))
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        port = runner.addresses[0][1]
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        account = {"metadata": {"name": "default"}}
        path = "/api/v1/namespaces/default/serviceaccounts"
        assert (await server.ask("POST", path, account)).status == 201
        await measured.create(
            "/api/v1/nodes", {"metadata": {"name": "n1", "labels": {"disk": "ssd"}}}, status
        )
        yield measured


def cores(text: str) -> float:
    """Return a CPU amount as a number."""
    return int(text.rstrip("nm")) / {"n": 1e9, "m": 1e3}.get(text[-1], 1)


async def test_nodes(measured: Measured) -> None:
    nodes = await measured.read("/nodes")
    assert (nodes["kind"], nodes["apiVersion"]) == ("NodeMetricsList", "metrics.k8s.io/v1beta1")
    assert nodes["metadata"] == {}
    (node,) = nodes["items"]
    assert list(node) == ["metadata", "timestamp", "window", "usage"]
    assert node["metadata"]["name"] == "n1"
    assert node["metadata"]["labels"]["disk"] == "ssd"
    assert node["usage"]["memory"] == "4Ki"
    assert cores(node["usage"]["cpu"]) == pytest.approx(3, rel=0.3)
    assert 1 <= float(node["window"].rstrip("s")) < 5
    one = await measured.read("/nodes/n1")
    assert (one["kind"], one["usage"]) == ("NodeMetrics", node["usage"])
    assert measured.reads == 2


async def test_pods(measured: Measured) -> None:
    await measured.add_pod("a", {"x": (0.5, 1024), "w": (0.0, 1000)})
    await measured.add_pod("b", {"x": (0.0, 0)})
    await measured.add_pod("waiting", {"x": (0.0, 0)}, phase="Pending")
    pods = await measured.read("/namespaces/default/pods")
    assert [pod["metadata"]["name"] for pod in pods["items"]] == ["a", "b"]
    containers = pods["items"][0]["containers"]
    assert [container["name"] for container in containers] == ["w", "x"]
    assert containers[0]["usage"] == {"cpu": "0", "memory": "1k"}
    assert containers[1]["usage"]["memory"] == "1Ki"
    assert cores(containers[1]["usage"]["cpu"]) == pytest.approx(0.5, rel=0.3)
    assert len((await measured.read("/pods"))["items"]) == 2
    assert (await measured.read("/namespaces/other/pods"))["items"] == []
    one = await measured.read("/namespaces/default/pods/a")
    assert (one["kind"], one["metadata"]["namespace"]) == ("PodMetrics", "default")
    assert one["containers"] == containers


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("labelSelector=app%3Da", ["a"]),
        ("labelSelector=app%20in%20(b,c)", ["b"]),
        ("fieldSelector=metadata.name%3Db", ["b"]),
        ("fieldSelector=metadata.namespace!%3Ddefault", []),
    ],
)
async def test_selectors(measured: Measured, query: str, names: list[str]) -> None:
    await measured.add_pod("a", {"x": (0.0, 0)})
    await measured.add_pod("b", {"x": (0.0, 0)})
    pods = await measured.read(f"/pods?{query}")
    assert [pod["metadata"]["name"] for pod in pods["items"]] == names
    unknown = await measured.server.ask("GET", f"{ROOT}/pods?fieldSelector=spec.nodeName%3Dn1")
    assert unknown.status == 400


async def test_tables(measured: Measured) -> None:
    await measured.add_pod("a", {"x": (0.0, 1024), "y": (0.0, 1024)})
    table = await measured.read("/namespaces/default/pods", Accept=TABLE)
    assert [column["name"] for column in table["columnDefinitions"]] == [
        "Name", "cpu", "memory", "Window",
    ]  # fmt: skip
    (row,) = table["rows"]
    assert row["cells"][:3] == ["a", "0", "2Ki"]
    assert row["cells"][3].endswith("s")
    assert row["object"]["kind"] == "PartialObjectMetadata"
    one = await measured.read("/nodes/n1?includeObject=Object", Accept=TABLE)
    assert one["rows"][0]["object"]["kind"] == "NodeMetrics"
    partial = "application/json;as={};v=v1;g=meta.k8s.io"
    metadata = await measured.read("/nodes/n1", Accept=partial.format("PartialObjectMetadata"))
    assert (metadata["kind"], "usage" in metadata) == ("PartialObjectMetadata", False)
    listed = await measured.read("/pods", Accept=partial.format("PartialObjectMetadataList"))
    assert (listed["kind"], list(listed["items"][0])) == (
        "PartialObjectMetadataList", ["kind", "apiVersion", "metadata"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/nodes/none", 'nodes "none" not found'),
        ("/nodes/lost", 'nodemetrics.metrics.k8s.io "lost" not found'),
        ("/namespaces/default/pods/none", 'pods "default/none" not found'),
        ("/namespaces/default/pods/waiting",
         'podmetrics.metrics.k8s.io "default/waiting" not found'),
    ],
)  # fmt: skip
async def test_what_is_not_measured_is_not_found(
    measured: Measured, path: str, message: str
) -> None:
    await measured.create("/api/v1/nodes", {"metadata": {"name": "lost"}}, {})
    await measured.add_pod("waiting", {"x": (0.0, 0)}, phase="Pending")
    answer = await measured.server.ask("GET", ROOT + path)
    assert (answer.status, answer.json["message"]) == (404, message)
    # A node that cannot be reached leaves the others.
    assert len((await measured.read("/nodes"))["items"]) == 1


async def test_a_pod_that_was_just_started_has_no_usage_until_the_next_measurement(
    measured: Measured,
) -> None:
    await measured.read("/nodes")
    await measured.add_pod("new", {"x": (0.0, 0)})
    assert (await measured.read("/pods"))["items"] == []


async def test_only_those_who_may_read_metrics_do(measured: Measured) -> None:
    for path, resource in (("/nodes", "nodes"), ("/namespaces/default/pods", "pods")):
        answer = await measured.server.ask("GET", ROOT + path, token="alice-token")
        assert answer.status == 403
        reason = f'cannot list resource "{resource}" in API group "metrics.k8s.io"'
        assert reason in answer.json["message"]
    assert measured.reads == 0
    for method in ("POST", "DELETE"):
        answer = await measured.server.ask(method, f"{ROOT}/nodes", {})
        assert answer.status == 405
    role = await measured.server.ask(
        "GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:aggregated-metrics-reader"
    )
    assert role.json["metadata"]["labels"] == {
        f"rbac.authorization.k8s.io/aggregate-to-{name}": "true"
        for name in ("view", "edit", "admin")
    }


async def test_discovery_and_the_registration(measured: Measured) -> None:
    resources = (await measured.read(""))["resources"]
    assert [(one["name"], one["kind"], one["namespaced"], one["verbs"]) for one in resources] == [
        ("nodes", "NodeMetrics", False, ["get", "list"]),
        ("pods", "PodMetrics", True, ["get", "list"]),
    ]
    aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    groups = (await measured.server.ask("GET", "/apis", Accept=aggregated)).json["items"]
    assert groups[-1]["metadata"]["name"] == "metrics.k8s.io"
    path = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io"
    service = (await measured.server.ask("GET", path)).json
    (condition,) = service["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("Available", "True")
    assert service["spec"]["groupPriorityMinimum"] == 100
    document = await measured.server.ask("GET", "/openapi/v3/apis/metrics.k8s.io/v1beta1")
    assert f"{ROOT}/namespaces/{{namespace}}/pods/{{name}}" in document.json["paths"]
