"""The default storage class: made once, and the default unless there is one."""

from __future__ import annotations

from pathlib import Path

from moorage.api.claims.classes import DRIVER
from moorage.cluster.storage_class import CSI_DRIVERS, NAME, create_storage_class
from moorage.wire.client.resources import STORAGE_CLASSES
from tests.api.claims.objects import class_json
from tests.controllers.cluster import running_cluster

IS_DEFAULT = "storageclass.kubernetes.io/is-default-class"


async def test_the_class_is_made_once_and_is_the_default(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        assert await create_storage_class(cluster.client)
        made = await cluster.client.get(STORAGE_CLASSES, NAME)
        assert made.provisioner == "runtime.moorage.dev/local-path"
        assert (made.reclaim_policy, made.volume_binding_mode) == ("Delete", "WaitForFirstConsumer")
        assert made.metadata.annotations[IS_DEFAULT] == "true"
        assert (await cluster.client.get(CSI_DRIVERS, DRIVER)).metadata.name == DRIVER
        assert not await create_storage_class(cluster.client)
        await cluster.client.delete(STORAGE_CLASSES, NAME)
        assert not await create_storage_class(cluster.client)
        assert not (await cluster.client.list(STORAGE_CLASSES)).items


async def test_an_administrators_default_stays_the_default(tmp_path: Path) -> None:
    own = class_json("own", is_default=True)
    del own["metadata"]["uid"]
    async with running_cluster(tmp_path) as cluster:
        await cluster.client.create(STORAGE_CLASSES, own)
        assert await create_storage_class(cluster.client)
        made = await cluster.client.get(STORAGE_CLASSES, NAME)
        assert made.metadata.annotations[IS_DEFAULT] == "false"


async def test_a_class_that_is_there_is_not_changed(tmp_path: Path) -> None:
    own = class_json(NAME, provisioner="example.com/other")
    del own["metadata"]["uid"]
    async with running_cluster(tmp_path) as cluster:
        await cluster.client.create(STORAGE_CLASSES, own)
        assert not await create_storage_class(cluster.client)
        made = await cluster.client.get(STORAGE_CLASSES, NAME)
        assert made.provisioner == "example.com/other"
