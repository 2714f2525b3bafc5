"""Default RuntimeClasses: one for each usable handler, created by the first `moor up` that has it.

A class has its handler's name and the label `app.kubernetes.io/managed-by: moorage`. An existing
class is never changed, and each is created only once, so a class that an administrator deletes
stays deleted. The handlers that had a class are recorded in the cluster itself, in the ConfigMap
`kube-system/moorage-runtime-classes`, so that the record is restored with the classes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from moorage.api.configuration import ConfigMap
from moorage.api.errors import AlreadyExistsError, ConflictError, InvalidError, NotFoundError
from moorage.api.logs import Log
from moorage.client import Client
from moorage.client.resources import CONFIG_MAPS, RUNTIME_CLASSES

MANAGED_LABEL = "app.kubernetes.io/managed-by"
MANAGER = "moorage"
RECORD = "moorage-runtime-classes"
RECORD_NAMESPACE = "kube-system"
_HANDLERS = "handlers"
# So that a later `kubectl apply` takes the class over without a warning.
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_TRIES = 5

log = Log(__name__)


async def create_default_classes(client: Client, handlers: Iterable[str]) -> tuple[str, ...]:
    """Create a class for each handler without a record of one; return the names of new classes.

    Skips the default handler, whose name is empty. Raises StatusError.
    """
    for _ in range(_TRIES):
        record = await _read_record(client)
        recorded = _listed(record)
        new = sorted({handler for handler in handlers if handler} - recorded)
        if not new:
            return ()
        created = [name for name in new if await _create(client, name)]
        try:
            await _write_record(client, record, recorded | set(new))
        except (AlreadyExistsError, ConflictError):
            # Another node's agent wrote the record first. The classes exist; read the record again.
            continue
        return tuple(created)
    raise ConflictError(f"configmap {RECORD_NAMESPACE}/{RECORD} changes all the time")


async def _create(client: Client, name: str) -> bool:
    """Create a class. Return False if it exists, or if the API refuses it, which is logged."""
    labels = {MANAGED_LABEL: MANAGER}
    body = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": name, "labels": labels},
        "handler": name,
    }
    applied = json.dumps(body, separators=(",", ":"))
    metadata = {"name": name, "labels": labels, "annotations": {LAST_APPLIED: applied}}
    try:
        await client.create(RUNTIME_CLASSES, body | {"metadata": metadata})
    except AlreadyExistsError:
        return False
    except InvalidError as error:
        # Another engine's handler may have a name that no class can have.
        log.warning("no class for a handler", handler=name, reason=error)
        return False
    log.info("runtime class created", name=name)
    return True


async def _read_record(client: Client) -> ConfigMap | None:
    try:
        return await client.get(CONFIG_MAPS, RECORD, RECORD_NAMESPACE)
    except NotFoundError:
        return None


def _listed(record: ConfigMap | None) -> frozenset[str]:
    return frozenset(record.data.get(_HANDLERS, "").split()) if record else frozenset()


async def _write_record(client: Client, record: ConfigMap | None, names: Iterable[str]) -> None:
    """Write the record. Raises AlreadyExistsError, ConflictError if it changed meanwhile."""
    metadata = {"name": RECORD, "namespace": RECORD_NAMESPACE, "labels": {MANAGED_LABEL: MANAGER}}
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {_HANDLERS: "\n".join(sorted(names))},
    }
    if record is None:
        await client.create(CONFIG_MAPS, body, RECORD_NAMESPACE)
        return
    metadata["resourceVersion"] = record.metadata.resource_version
    await client.update(CONFIG_MAPS, body, RECORD, RECORD_NAMESPACE)
