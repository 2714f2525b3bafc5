"""`/scale` of what has replicas."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from moorage.api.errors import InternalError
from moorage.apiserver.endpoints.subresources.scale import scale_of
from moorage.apiserver.registry.kind import ScalePaths
from tests.apiserver.running_server import Running, serving

PATH = "/apis/apps/v1/namespaces/default/deployments"
SCALE = f"{PATH}/web/scale"
MERGE = "application/merge-patch+json"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    labels = {"app": "web", "tier": "front"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    deployment = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
    }  # fmt: skip
    async with serving(tmp_path) as running:
        assert (await running.ask("POST", PATH, deployment)).status == 201
        status = {"status": {"replicas": 1}}
        done = await running.ask("PATCH", f"{PATH}/web/status", status, Content_Type=MERGE)
        assert done.status == 200
        yield running


async def deployment(server: Running) -> Any:
    return (await server.ask("GET", f"{PATH}/web")).json


async def test_a_scale_shows_wish_count_and_selector(server: Running) -> None:
    meta = (await deployment(server))["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    assert (await server.ask("GET", SCALE)).json == {
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {key: meta[key] for key in kept},
        "spec": {"replicas": 2},
        "status": {"replicas": 1, "selector": "app=web,tier=front"},
    }  # fmt: skip


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
@pytest.mark.parametrize("replicas", [5, 0])
async def test_a_write_changes_the_wish_alone(server: Running, method: str, replicas: int) -> None:
    before = await deployment(server)
    body: dict[str, Any] = {"spec": {"replicas": replicas}}
    if method == "PUT":
        body |= {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web"}}
    media = MERGE if method == "PATCH" else "application/json"
    answer = await server.ask(method, SCALE, body, Content_Type=media)
    assert answer.status == 200, answer.text
    assert answer.json["spec"] == ({"replicas": replicas} if replicas else {})
    after = await deployment(server)
    assert after["spec"] == {**before["spec"], "replicas": replicas}
    assert after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]


@pytest.mark.parametrize(
    ("meta", "replicas", "code", "message"),
    [
        ({"name": "web"}, -1, 422, "must be greater than or equal to 0"),
        ({"name": "other"}, 1, 400,
         "the name of the object (other) does not match the name on the URL (web)"),
        ({"name": "web", "resourceVersion": "1"}, 1, 409, "the object has been modified"),
    ],
)  # fmt: skip
async def test_writes_that_are_refused(
    server: Running, meta: Any, replicas: int, code: int, message: str
) -> None:
    body = {
        "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": meta,
        "spec": {"replicas": replicas},
    }  # fmt: skip
    answer = await server.ask("PUT", SCALE, body)
    assert (answer.status, message in answer.json["message"]) == (code, True), answer.text
    assert (await deployment(server))["spec"]["replicas"] == 2


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"selector": {"matchExpressions": [{"key": "a", "operator": "-1"}]}},
         '"-1" is not a valid label selector operator'),
        ({"replicas": "many"}, '".spec.replicas" accessor error: \'many\' is not an integer'),
    ],
)  # fmt: skip
def test_an_object_without_a_scale(spec: dict[str, Any], why: str) -> None:
    with pytest.raises(InternalError) as caught:
        scale_of({"metadata": {"name": "x"}, "spec": spec}, ScalePaths())
    assert str(caught.value) == f"Internal error occurred: {why}"


def test_a_scale_of_nothing() -> None:
    assert scale_of({"metadata": {"name": "x"}}, ScalePaths()) == {
        "metadata": {"name": "x"}, "spec": {}, "status": {"replicas": 0}
    }  # fmt: skip


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_a_scale_is_a_table_for_kubectl_get(server: Running, version: str) -> None:
    table = f"application/json;as=Table;v={version};g=meta.k8s.io,application/json"
    answer = (await server.ask("GET", SCALE, Accept=table)).json
    meta = (await deployment(server))["metadata"]
    assert (answer["kind"], answer["apiVersion"]) == ("Table", f"meta.k8s.io/{version}")
    assert answer["metadata"] == {"resourceVersion": meta["resourceVersion"]}
    columns = [
        (column["name"], column["type"], column["format"], bool(column["description"]))
        for column in answer["columnDefinitions"]
    ]
    assert columns == [
        ("Name", "string", "", True), ("Desired", "integer", "", True),
        ("Available", "integer", "", True), ("Age", "string", "", True),
    ]  # fmt: skip
    (row,) = answer["rows"]
    assert row["cells"][:3] == ["web", 2, 1]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    partial = f"application/json;as=PartialObjectMetadata;v={version};g=meta.k8s.io"
    answer = (await server.ask("GET", SCALE, Accept=partial)).json
    assert (answer["kind"], answer["metadata"]["name"]) == ("PartialObjectMetadata", "web")
    assert "spec" not in answer
