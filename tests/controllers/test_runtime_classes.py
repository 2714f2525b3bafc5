"""RuntimeClasses of handlers: one for each, once, and completed while they are managed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from moorage.api.clock import SystemClock
from moorage.api.errors import ConflictError
from moorage.api.runtime_group import ISOLATION_LABEL, MANAGED_LABEL
from moorage.controllers.informers import Informers
from moorage.controllers.runtimeclasses import RuntimeClassController, profile_informer, weakest
from moorage.runtimes.custom_resources import install_definitions
from moorage.runtimes.probing.default_classes import (
    RECORD,
    RECORD_NAMESPACE,
    complete_class,
    create_classes,
)
from moorage.wire.client.resources import CONFIG_MAPS, NODES, RUNTIME_CLASSES, RUNTIME_PROFILES
from moorage.wire.client.rest import Client
from tests.clocks import FakeClock
from tests.controllers.cluster import Cluster, running_cluster
from tests.controllers.memory import MemoryClient

pytestmark = pytest.mark.slow


async def _classes(cluster: Cluster) -> dict[str, str]:
    listed = await cluster.client.list(RUNTIME_CLASSES)
    return {obj.metadata.name: obj.handler for obj in listed.items}


async def test_each_handler_gets_a_class_of_its_name_but_the_default(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        assert await create_classes(cluster.client, dict.fromkeys(["runc", "", "crun"], "")) == (
            "crun",
            "runc",
        )
        assert await _classes(cluster) == {"crun": "crun", "runc": "runc"}
        made = await cluster.client.get(RUNTIME_CLASSES, "crun")
        assert made.metadata.labels == {
            "app.kubernetes.io/managed-by": "moorage",
            "runtime.moorage.dev/managed": "true",
        }


async def test_a_deleted_class_is_not_made_again_and_a_new_handler_gets_one(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await create_classes(cluster.client, dict.fromkeys(["runc", "crun"], ""))
        await cluster.client.delete(RUNTIME_CLASSES, "crun")
        assert await create_classes(cluster.client, dict.fromkeys(["runc", "crun"], "")) == ()
        assert await create_classes(
            cluster.client, dict.fromkeys(["runc", "crun", "kata"], "")
        ) == ("kata",)
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
        assert await create_classes(cluster.client, dict.fromkeys(["crun"], "")) == ()
        assert await _classes(cluster) == {"crun": "other"}
        await cluster.client.delete(RUNTIME_CLASSES, "crun")
        assert await create_classes(cluster.client, dict.fromkeys(["crun"], "")) == ()


async def test_a_handler_whose_name_no_class_can_have_is_left_out(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        assert await create_classes(cluster.client, dict.fromkeys(["Not_A_Name", "runc"], "")) == (
            "runc",
        )
        record = await cluster.client.get(CONFIG_MAPS, RECORD, RECORD_NAMESPACE)
        assert record.data["handlers"].split() == ["Not_A_Name", "runc"]


async def test_no_more_handlers_get_classes_than_the_record_can_hold(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        assert await create_classes(cluster.client, dict.fromkeys("ab", ""), 3) == ("a", "b")
        assert await create_classes(cluster.client, dict.fromkeys("abcdef", ""), 3) == ("c",)
        assert await create_classes(cluster.client, dict.fromkeys("abcdef", ""), 3) == ()


async def test_a_record_that_others_change_all_the_time_is_an_error() -> None:
    client: Any = MemoryClient(FakeClock())
    client.failures += [("create", CONFIG_MAPS.plural, ConflictError("another was faster"))] * 5
    with pytest.raises(ConflictError, match="changes all the time"):
        await create_classes(client, dict.fromkeys(["runc"], ""))
    tries = client.asked("create", CONFIG_MAPS)
    assert [request.body["data"]["handlers"] for request in tries] == ["runc"] * 5


async def test_classes_and_their_record_are_written_whole(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await create_classes(cluster.client, dict.fromkeys(["runc"], ""))
        created = await _raw(cluster, "/apis/node.k8s.io/v1/runtimeclasses/runc")
        applied = {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {
                "name": "runc",
                "labels": {
                    "app.kubernetes.io/managed-by": "moorage",
                    "runtime.moorage.dev/managed": "true",
                },
            },
            "handler": "runc",
        }
        annotations = created["metadata"]["annotations"]
        # Compact, as kubectl writes it.
        text = json.dumps(applied, separators=(",", ":"))
        assert annotations == {"kubectl.kubernetes.io/last-applied-configuration": text}
        assert _own_fields(created) == applied
        await create_classes(cluster.client, dict.fromkeys(["crun", ""], ""))
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


async def test_a_managed_class_is_completed_and_another_is_not(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await create_classes(cluster.client, {"crun": ""})
        made = await cluster.client.get(RUNTIME_CLASSES, "crun")
        assert await complete_class(cluster.client, made, "shared-kernel")
        made = await cluster.client.get(RUNTIME_CLASSES, "crun")
        assert made.metadata.labels[ISOLATION_LABEL] == "shared-kernel"
        assert not await complete_class(cluster.client, made, "shared-kernel")
        no_longer = {"metadata": {"labels": {MANAGED_LABEL: None}}}
        made = await cluster.client.patch(RUNTIME_CLASSES, "crun", no_longer)
        assert not await complete_class(cluster.client, made, "virtual-machine")


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ([], ""),
        (["shared-kernel"], "shared-kernel"),
        (["virtual-machine", "user-space-kernel"], "user-space-kernel"),
        (["virtual-machine", ""], ""),
    ],
)
def test_a_class_is_as_strong_as_its_weakest_node(levels: list[str], expected: str) -> None:
    assert weakest(levels) == expected


async def test_a_class_follows_the_profiles_of_its_handler(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        client = cluster.client
        await install_definitions(client)
        informers = Informers(client, SystemClock())
        profiles = profile_informer(client, SystemClock())
        controller = RuntimeClassController(client, informers, profiles, SystemClock())
        running = asyncio.gather(controller.run(), profiles.run(), informers.run())
        try:
            for node in "abc":
                await _write_node(client, node, "kata", "broken", "other")
            await _write_profile(client, "a", "kata", "virtual-machine", works=True)
            await _write_profile(client, "a", "broken", "", works=False)
            await _until_isolation(client, "kata", "virtual-machine")
            await _write_profile(client, "b", "kata", "user-space-kernel", works=True)
            await _until_isolation(client, "kata", "user-space-kernel")
            assert list(await _classes(cluster)) == ["kata"]
            await client.delete(RUNTIME_CLASSES, "kata")
            await _write_profile(client, "c", "other", "", works=True)
            await _until_isolation(client, "other", "")
            assert list(await _classes(cluster)) == ["other"]
            # Neither what a Node does not report, nor what no Node stands behind, gets a class.
            await _write_profile(client, "a", "forged", "virtual-machine", works=True)
            await _write_profile(client, "gone", "ghost", "virtual-machine", works=True)
            await _write_node(client, "old")
            await _write_profile(client, "old", "kata-old", "", works=True)
            await _until_isolation(client, "kata-old", "")
            assert list(await _classes(cluster)) == ["kata-old", "other"]
            await _report(client, "a", "forged")
            await _until_isolation(client, "forged", "virtual-machine")
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_a_second_name_of_a_handler_gets_no_class_where_the_first_is_its_nodes_too(
    tmp_path: Path,
) -> None:
    async with running_cluster(tmp_path) as cluster:
        client = cluster.client
        await install_definitions(client)
        # Of an earlier version: it is kept, and completed.
        await create_classes(client, {"kata-containers": ""})
        informers = Informers(client, SystemClock())
        profiles = profile_informer(client, SystemClock())
        controller = RuntimeClassController(client, informers, profiles, SystemClock())
        running = asyncio.gather(controller.run(), profiles.run(), informers.run())
        try:
            level = "user-space-kernel"
            await _write_node(client, "a", "gvisor", "runsc", "kata", "kata-containers", "end")
            # The second name is probed first.
            await _write_profile(client, "a", "runsc", level, works=True, same_as="gvisor")
            await _write_profile(client, "a", "gvisor", level, works=True)
            await _write_profile(
                client, "a", "kata-containers", "virtual-machine", works=True, same_as="kata"
            )
            await _until_isolation(client, "gvisor", level)
            await _until_isolation(client, "kata-containers", "virtual-machine")
            await _write_profile(client, "a", "end", level, works=True)
            await _until_isolation(client, "end", level)
            assert sorted(await _classes(cluster)) == ["end", "gvisor", "kata-containers"]
            # Where it is the only name, it is a handler of its own.
            await _write_node(client, "b", "runsc")
            await _write_profile(client, "b", "runsc", level, works=True, same_as="gvisor")
            await _until_isolation(client, "runsc", level)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def _write_node(client: Client, name: str, *handlers: str) -> None:
    await client.create(NODES, {"metadata": {"name": name}})
    await _report(client, name, *handlers)


async def _report(client: Client, node: str, *handlers: str) -> None:
    status = {"runtimeHandlers": [{"name": handler} for handler in handlers]}
    await client.patch(NODES, node, {"status": status}, subresource="status")


async def _write_profile(
    client: Client, node: str, handler: str, isolation: str, *, works: bool, same_as: str = ""
) -> None:
    name = f"{node}.{handler}"
    spec = {"nodeName": node, "handler": handler}
    created = await client.create(RUNTIME_PROFILES, {"metadata": {"name": name}, "spec": spec})
    condition = {
        "type": "Working",
        "status": "True" if works else "False",
        "reason": "Tested",
        "message": "tested",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    body = {
        "metadata": {"name": name, "resourceVersion": created.metadata.resource_version},
        "spec": spec,
        "status": {"isolation": isolation, "sameAs": same_as, "conditions": [condition]},
    }
    await client.update(RUNTIME_PROFILES, body, name, subresource="status")


async def _until_isolation(client: Client, name: str, isolation: str) -> None:
    """Wait until a class has an isolation label, or is there without one."""
    async with asyncio.timeout(20):
        while True:
            listed = await client.list(RUNTIME_CLASSES)
            for found in listed.items:
                labels = found.metadata.labels
                if found.metadata.name == name and labels.get(ISOLATION_LABEL, "") == isolation:
                    return
            async for _ in client.watch(
                RUNTIME_CLASSES, resource_version=listed.metadata.resource_version
            ):
                break


async def _raw(cluster: Cluster, path: str) -> Any:
    return json.loads(await cluster.client.request("GET", path))


def _own_fields(document: dict[str, Any]) -> dict[str, Any]:
    metadata = {name: document["metadata"][name] for name in ("name", "labels")}
    return document | {"metadata": metadata}
