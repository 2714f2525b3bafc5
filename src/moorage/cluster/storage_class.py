"""Default StorageClass `local-path`, created by the first `moor up` that has a node.

A CSIDriver is created with it: it says that the volumes are not attached, for which another
controller than ours would wait.

Like the default RuntimeClasses it is created only once: a class that an administrator deletes stays
deleted, and one that exists is never changed. That it was created is recorded in the ConfigMap
`kube-system/moorage-storage-class`. It is the default class unless there is one already.
"""

from __future__ import annotations

import json
from typing import Any

from moorage.api.claims import default_class
from moorage.api.claims.annotations import DEFAULT_CLASS
from moorage.api.claims.classes import DRIVER, PROVISIONER, WAIT_FOR_FIRST_CONSUMER
from moorage.api.errors import AlreadyExistsError, NotFoundError
from moorage.api.logs import Log
from moorage.api.meta import Object, ObjectMeta
from moorage.runtimes.probing.default_classes import (
    LAST_APPLIED,
    MANAGED_BY_LABEL,
    MANAGER,
    RECORD_NAMESPACE,
)
from moorage.wire.client.resources import CONFIG_MAPS, STORAGE_CLASSES, Resource
from moorage.wire.client.rest import Client

NAME = "local-path"
RECORD = "moorage-storage-class"

log = Log(__name__)


class CsiDriver(Object, frozen=True):
    """A `CSIDriver`, by its name."""

    metadata: ObjectMeta = ObjectMeta()


CSI_DRIVERS = Resource(
    "storage.k8s.io", "v1", "csidrivers", "CSIDriver", CsiDriver, is_namespaced=False
)


async def create_storage_class(client: Client) -> bool:
    """Create the class, unless that has been done before. Return whether it is new.

    Raises StatusError.
    """
    try:
        await client.get(CONFIG_MAPS, RECORD, RECORD_NAMESPACE)
    except NotFoundError:
        await _create_driver(client)
        is_new = await _create(client)
    else:
        return False
    labels = {MANAGED_BY_LABEL: MANAGER}
    record = {
        "metadata": {"name": RECORD, "namespace": RECORD_NAMESPACE, "labels": labels},
        "data": {"name": NAME},
    }
    try:
        await client.create(CONFIG_MAPS, record, RECORD_NAMESPACE)
    except AlreadyExistsError:
        log.debug("another node recorded the storage class first")
    return is_new


async def _create_driver(client: Client) -> None:
    body = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": DRIVER, "labels": {MANAGED_BY_LABEL: MANAGER}},
        "spec": {"attachRequired": False},
    }
    try:
        await client.create(CSI_DRIVERS, body)
    except AlreadyExistsError:
        log.debug("the driver exists", name=DRIVER)


async def _create(client: Client) -> bool:
    classes = await client.list(STORAGE_CLASSES)
    has_default = default_class(classes.items) is not None
    annotations = {DEFAULT_CLASS: "false" if has_default else "true"}
    metadata: dict[str, Any] = {
        "name": NAME, "labels": {MANAGED_BY_LABEL: MANAGER}, "annotations": annotations,
    }  # fmt: skip
    body = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": metadata,
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": WAIT_FOR_FIRST_CONSUMER,
    }
    applied = json.dumps(body, separators=(",", ":"))
    noted = metadata | {"annotations": annotations | {LAST_APPLIED: applied}}
    try:
        await client.create(STORAGE_CLASSES, body | {"metadata": noted})
    except AlreadyExistsError:
        return False
    log.info("storage class created", name=NAME, is_default=not has_default)
    return True
