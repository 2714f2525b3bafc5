"""The official Python client against a real API server."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import pytest
from kubernetes import client, config, watch

from tests.running import RunningCluster


@pytest.fixture(scope="module")
def api(control_plane: RunningCluster) -> client.ApiClient:
    return config.new_client_from_config(str(control_plane.kubeconfig))


def _class(name: str, handler: str = "runc") -> client.V1RuntimeClass:
    return client.V1RuntimeClass(metadata=client.V1ObjectMeta(name=name), handler=handler)


def test_runtime_classes_are_created_read_patched_listed_and_deleted(api: client.ApiClient) -> None:
    node = client.NodeV1Api(api)
    name = f"py-{uuid.uuid4().hex[:8]}"
    created = node.create_runtime_class(_class(name))
    assert created.handler == "runc"
    patched = node.patch_runtime_class(
        name, {"overhead": {"podFixed": {"cpu": "250m", "memory": "64Mi"}}}
    )
    assert patched.overhead.pod_fixed == {"cpu": "250m", "memory": "64Mi"}
    assert name in [obj.metadata.name for obj in node.list_runtime_class().items]
    node.delete_runtime_class(name)
    with pytest.raises(client.ApiException) as refused:
        node.read_runtime_class(name)
    assert refused.value.status == 404


def test_pods_are_created_watched_patched_and_deleted(api: client.ApiClient) -> None:
    core, node = client.CoreV1Api(api), client.NodeV1Api(api)
    name = f"py-{uuid.uuid4().hex[:8]}"
    node.create_runtime_class(_class(name))
    seen: list[tuple[str, Any]] = []
    started = core.list_namespaced_pod("default").metadata.resource_version

    def follow() -> None:
        stream = watch.Watch().stream(
            core.list_namespaced_pod,
            "default",
            field_selector=f"metadata.name={name}",
            resource_version=started,
            timeout_seconds=20,
        )
        for event in stream:
            seen.append((event["type"], event["object"]))
            if event["type"] == "DELETED":
                return

    follower = threading.Thread(target=follow)
    follower.start()
    core.create_namespaced_pod(
        "default",
        client.V1Pod(
            metadata=client.V1ObjectMeta(name=name),
            spec=client.V1PodSpec(
                runtime_class_name=name,
                containers=[client.V1Container(name="app", image="app:1")],
            ),
        ),
    )
    core.patch_namespaced_pod(name, "default", {"metadata": {"labels": {"seen": "yes"}}})
    core.delete_namespaced_pod(name, "default", grace_period_seconds=0)
    follower.join(25)
    node.delete_runtime_class(name)
    kinds = [kind for kind, _ in seen]
    assert kinds[0] == "ADDED"
    assert kinds[-1] == "DELETED"
    assert any(obj.metadata.labels == {"seen": "yes"} for _, obj in seen)
    assert seen[0][1].spec.runtime_class_name == name


def test_two_writers_on_one_version_make_a_conflict(api: client.ApiClient) -> None:
    node = client.NodeV1Api(api)
    name = f"py-{uuid.uuid4().hex[:8]}"
    first = node.create_runtime_class(_class(name))
    second = node.read_runtime_class(name)
    first.metadata.labels = {"writer": "first"}
    node.replace_runtime_class(name, first)
    second.metadata.labels = {"writer": "second"}
    with pytest.raises(client.ApiException) as refused:
        node.replace_runtime_class(name, second)
    assert refused.value.status == 409
    assert "the object has been modified" in refused.value.body
    node.delete_runtime_class(name)


def test_list_continues_after_its_page(api: client.ApiClient) -> None:
    node = client.NodeV1Api(api)
    prefix = f"py-{uuid.uuid4().hex[:8]}"
    wanted = {f"{prefix}-{index}" for index in range(7)}
    for name in wanted:
        node.create_runtime_class(
            client.V1RuntimeClass(
                metadata=client.V1ObjectMeta(name=name, labels={"page": prefix}), handler="runc"
            )
        )
    items: list[str] = []
    token = None
    while token != "":
        page = node.list_runtime_class(
            label_selector=f"page={prefix}", limit=3, _continue=token or None
        )
        assert len(page.items) <= 3
        items += [obj.metadata.name for obj in page.items]
        token = page.metadata._continue or ""
    assert items == sorted(wanted)
    node.delete_collection_runtime_class(label_selector=f"page={prefix}")
    assert not node.list_runtime_class(label_selector=f"page={prefix}").items
