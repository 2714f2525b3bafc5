"""kopf: an operator of a custom resource, against the control plane."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import kopf
import pytest
from kubernetes import client, config

from tests.running import RunningCluster, until

GROUP, VERSION, PLURAL = "kopf.moorage.example", "v1", "widgets"
_ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{PLURAL}.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": PLURAL, "singular": "widget", "kind": "Widget"},
        "versions": [
            {
                "name": VERSION,
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": _ANY, "status": _ANY},
                    }
                },
            }
        ],
    },
}


@pytest.fixture
def operator(
    control_plane: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> Iterator[client.ApiClient]:
    """Run an operator that keeps a ConfigMap for each Widget."""
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig))
    api = config.new_client_from_config(str(control_plane.kubeconfig))
    definitions, core = client.ApiextensionsV1Api(api), client.CoreV1Api(api)
    definitions.create_custom_resource_definition(_DEFINITION)
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)  # type: ignore[untyped-decorator]
    def login(**kwargs: Any) -> Any:
        return kopf.login_with_kubeconfig(**kwargs)

    @kopf.on.create(GROUP, VERSION, PLURAL, id="create", registry=registry)  # type: ignore[untyped-decorator]
    def create(spec: Any, name: str, namespace: str, **_: Any) -> dict[str, bool]:
        body = {"metadata": {"name": name}, "data": {"size": str(spec["size"])}}
        core.create_namespaced_config_map(namespace, body)
        return {"created": True}

    @kopf.on.update(GROUP, VERSION, PLURAL, registry=registry)  # type: ignore[untyped-decorator]
    def update(spec: Any, name: str, namespace: str, **_: Any) -> None:
        core.patch_namespaced_config_map(name, namespace, {"data": {"size": str(spec["size"])}})

    @kopf.on.delete(GROUP, VERSION, PLURAL, registry=registry)  # type: ignore[untyped-decorator]
    def delete(name: str, namespace: str, **_: Any) -> None:
        core.delete_namespaced_config_map(name, namespace)

    ready, stop = threading.Event(), threading.Event()
    running = threading.Thread(
        target=kopf.run,
        kwargs={
            "registry": registry,
            "standalone": True,
            "namespaces": ["default"],
            "ready_flag": ready,
            "stop_flag": stop,
        },
    )
    running.start()
    try:
        assert ready.wait(30)
        yield api
    finally:
        stop.set()
        running.join(30)
        definitions.delete_custom_resource_definition(_DEFINITION["metadata"]["name"])
    assert not running.is_alive()


def test_an_operator_follows_a_custom_resource_from_creation_to_deletion(
    operator: client.ApiClient,
) -> None:
    core, custom = client.CoreV1Api(operator), client.CustomObjectsApi(operator)
    place = (GROUP, VERSION, "default", PLURAL)

    def size() -> str | None:
        listed = core.list_namespaced_config_map("default", field_selector="metadata.name=w")
        return str(listed.items[0].data["size"]) if listed.items else None

    def widgets() -> list[dict[str, Any]]:
        return list(custom.list_namespaced_custom_object(*place)["items"])

    body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Widget", "metadata": {"name": "w"}}
    custom.create_namespaced_custom_object(*place, {**body, "spec": {"size": 3}})
    until(lambda: size() == "3", "the ConfigMap made")
    until(lambda: "create" in widgets()[0].get("status", {}), "the handler's result in the status")
    (widget,) = widgets()
    assert widget["status"]["create"] == {"created": True}
    assert widget["metadata"]["finalizers"] == ["kopf.zalando.org/KopfFinalizerMarker"]
    custom.patch_namespaced_custom_object(*place, "w", {"spec": {"size": 5}})
    until(lambda: size() == "5", "the ConfigMap changed")
    custom.delete_namespaced_custom_object(*place, "w")
    until(lambda: widgets() == [], "the Widget gone")
    assert size() is None
