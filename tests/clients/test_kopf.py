"""kopf: an operator of a custom resource, against the control plane."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import kopf
import pytest
from kubernetes import client, config

from moorage.cluster.access.identities import Authority, Subject
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


@pytest.fixture
def guard(
    control_plane: RunningCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[client.CoreV1Api]:
    """Run an operator that changes and refuses ConfigMaps by webhooks of its own."""
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig))
    api = config.new_client_from_config(str(control_plane.kubeconfig))
    authority = Authority(tmp_path, datetime.now(UTC))
    pair = authority.issue("webhook", Subject("webhook", hosts=("127.0.0.1",)))
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)  # type: ignore[untyped-decorator]
    def login(**kwargs: Any) -> Any:
        return kopf.login_with_kubeconfig(**kwargs)

    @kopf.on.startup(registry=registry)  # type: ignore[untyped-decorator]
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.admission.managed = "guard.moorage.example"
        settings.admission.server = kopf.WebhookServer(
            addr="127.0.0.1", certfile=pair.certificate, pkeyfile=pair.key,
            cafile=authority.pair.certificate,
        )  # fmt: skip

    only = {"registry": registry, "labels": {"guarded": "yes"}}

    @kopf.on.validate("configmaps", id="check", **only)  # type: ignore[untyped-decorator]
    def check(body: kopf.Body, warnings: list[str], **_: Any) -> None:
        if body["data"]["size"] == "0":
            raise kopf.AdmissionError("size must be positive", code=422)
        warnings.append("sizes are in metres")

    @kopf.on.mutate("configmaps", id="fill", **only)  # type: ignore[untyped-decorator]
    def fill(body: kopf.Body, patch: kopf.Patch, **_: Any) -> None:
        if "unit" not in body["data"]:
            patch["data"] = {"unit": "m"}

    ready, stop = threading.Event(), threading.Event()
    options = {
        "registry": registry, "standalone": True, "clusterwide": True, "ready_flag": ready,
        "stop_flag": stop,
    }  # fmt: skip
    running = threading.Thread(target=kopf.run, kwargs=options)
    running.start()
    hooks = client.AdmissionregistrationV1Api(api)

    def is_configured() -> bool:
        listed = (
            hooks.list_validating_webhook_configuration().items,
            hooks.list_mutating_webhook_configuration().items,
        )
        return all(any(one.webhooks for one in items) for items in listed)

    try:
        assert ready.wait(30)
        until(is_configured, "the webhooks in force")
        yield client.CoreV1Api(api)
    finally:
        stop.set()
        running.join(30)
    assert not running.is_alive()
    assert not is_configured()


def test_an_operator_refuses_and_changes_objects_by_its_webhooks(guard: client.CoreV1Api) -> None:
    def write(size: str, name: str = "guarded") -> Any:
        metadata = {"name": name, "labels": {"guarded": "yes"}}
        return guard.create_namespaced_config_map(
            "default", {"metadata": metadata, "data": {"size": size}}
        )

    with pytest.raises(client.ApiException) as refused:
        write("0")
    assert refused.value.status == 422
    assert "denied the request: size must be positive" in str(refused.value.body)
    assert write("1").data == {"size": "1", "unit": "m"}
    with pytest.raises(client.ApiException, match="size must be positive"):
        guard.patch_namespaced_config_map("guarded", "default", {"data": {"size": "0"}})
    guard.delete_namespaced_config_map("guarded", "default")


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
