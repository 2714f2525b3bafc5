"""Default classes: one for each handler, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from moorage.api.errors import ConflictError
from moorage.client.resources import CONFIG_MAPS, RUNTIME_CLASSES
from moorage.cluster import classes
from moorage.cluster.classes import (
    MANAGED_LABEL,
    RECORD,
    RECORD_NAMESPACE,
    create_default_classes,
)
from tests.controllers.cluster import Cluster, running_cluster


async def _classes(cluster: Cluster) -> dict[str, str]:
    listed = await cluster.client.list(RUNTIME_CLASSES)
    return {obj.metadata.name: obj.handler for obj in listed.items}


async def test_each_handler_gets_a_class_of_its_name_but_the_default(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        assert await create_default_classes(cluster.client, ["runc", "", "crun"]) == (
            "crun",
            "runc",
        )
        assert await _classes(cluster) == {"crun": "crun", "runc": "runc"}
        made = await cluster.client.get(RUNTIME_CLASSES, "crun")
        assert made.metadata.labels == {MANAGED_LABEL: "moorage"}


async def test_a_deleted_class_is_not_made_again_and_a_new_handler_gets_one(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await create_default_classes(cluster.client, ["runc", "crun"])
        await cluster.client.delete(RUNTIME_CLASSES, "crun")
        assert await create_default_classes(cluster.client, ["runc", "crun"]) == ()
        assert await create_default_classes(cluster.client, ["runc", "crun", "kata"]) == ("kata",)
        assert sorted(await _classes(cluster)) == ["kata", "runc"]


async def test_a_class_that_is_there_is_not_changed(tmp_path: Path) -> None:
    own = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "crun"},
        "handler": "other",
    }
    async with running_cluster(tmp_path) as cluster:
        await cluster.client.create(RUNTIME_CLASSES, own)
        assert await create_default_classes(cluster.client, ["crun"]) == ()
        assert await _classes(cluster) == {"crun": "other"}
        await cluster.client.delete(RUNTIME_CLASSES, "crun")
        assert await create_default_classes(cluster.client, ["crun"]) == ()


async def test_a_handler_whose_name_no_class_can_have_is_left_out(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        assert await create_default_classes(cluster.client, ["Not_A_Name", "runc"]) == ("runc",)
        record = await cluster.client.get(CONFIG_MAPS, RECORD, RECORD_NAMESPACE)
        assert record.data["handlers"].split() == ["Not_A_Name", "runc"]


async def test_a_record_that_others_change_all_the_time_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[frozenset[str]] = []

    async def lose(_client: object, _record: object, names: set[str]) -> None:
        tries.append(frozenset(names))
        raise ConflictError("another was faster")

    monkeypatch.setattr(classes, "_write_record", lose)
    async with running_cluster(tmp_path) as cluster:
        with pytest.raises(ConflictError, match="changes all the time"):
            await create_default_classes(cluster.client, ["runc"])
    assert tries == [{"runc"}] * 5


async def test_classes_and_their_record_are_written_whole(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await create_default_classes(cluster.client, ["runc"])
        created = await _raw(cluster, "/apis/node.k8s.io/v1/runtimeclasses/runc")
        applied = {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": "runc", "labels": {"app.kubernetes.io/managed-by": "moorage"}},
            "handler": "runc",
        }
        annotations = created["metadata"]["annotations"]
        # Compact, as kubectl writes it.
        text = json.dumps(applied, separators=(",", ":"))
        assert annotations == {"kubectl.kubernetes.io/last-applied-configuration": text}
        assert _own_fields(created) == applied
        await create_default_classes(cluster.client, ["crun", ""])
        record = await _raw(
            cluster, "/api/v1/namespaces/kube-system/configmaps/moorage-runtime-classes"
        )
        assert _own_fields(record) == {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": "moorage-runtime-classes",
                "labels": {"app.kubernetes.io/managed-by": "moorage"},
            },
            "data": {"handlers": "crun\nrunc"},
        }


async def _raw(cluster: Cluster, path: str) -> Any:
    return json.loads(await cluster.client.request("GET", path))


def _own_fields(document: dict[str, Any]) -> dict[str, Any]:
    metadata = {name: document["metadata"][name] for name in ("name", "labels")}
    return document | {"metadata": metadata}
