"""RuntimeClasses for handlers that work: created once each, and completed while they are managed.

A class has its handler's name and the label `runtime.moorage.dev/managed: "true"`. A class without
that label is never changed, and each is created only once, so a class that an administrator deletes
stays deleted. The handlers that had a class are recorded in the cluster itself, in the ConfigMap
`kube-system/moorage-runtime-classes`, so that the record is restored with the classes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from moorage.api.configuration import ConfigMap
from moorage.api.errors import AlreadyExistsError, ConflictError, InvalidError, NotFoundError
from moorage.api.logs import Log
from moorage.api.runtime_group import ISOLATION_LABEL, MANAGED, MANAGED_LABEL, RuntimeClass
from moorage.wire.client.resources import CONFIG_MAPS, RUNTIME_CLASSES
from moorage.wire.client.rest import Client

MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGER = "moorage"
RECORD = "moorage-runtime-classes"
RECORD_NAMESPACE = "kube-system"
_HANDLERS = "handlers"
MOST_CLASSES = 1000
"""Limit on the handlers that get a class by themselves, so that the record stays an object."""
# So that a later `kubectl apply` takes the class over without a warning.
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_TRIES = 5

log = Log(__name__)


async def create_classes(
    client: Client, handlers: Mapping[str, str], most: int = MOST_CLASSES
) -> tuple[str, ...]:
    """Create a class for each handler without a record of one; return the names of new classes.

    `handlers` maps each handler to its isolation level, empty while that is unknown. Skips the
    default handler, whose name is empty, and those beyond `most`, which is logged. Raises
    StatusError.
    """
    for _ in range(_TRIES):
        record = await _read_record(client)
        recorded = _listed(record)
        wanted = sorted({handler for handler in handlers if handler} - recorded)
        new = wanted[: max(0, most - len(recorded))]
        if len(new) < len(wanted):
            log.warning("too many handlers for classes", limit=most, left_out=wanted[-1])
        if not new:
            return ()
        created = [name for name in new if await _create(client, name, handlers[name])]
        try:
            await _write_record(client, record, recorded | set(new))
        except (AlreadyExistsError, ConflictError):
            # Another process wrote the record first. The classes exist; read the record again.
            continue
        return tuple(created)
    raise ConflictError(f"configmap {RECORD_NAMESPACE}/{RECORD} changes all the time")


async def complete_class(client: Client, found: RuntimeClass, isolation: str) -> bool:
    """Set the isolation label of a managed class; return whether something was written.

    Raises StatusError.
    """
    labels = found.metadata.labels
    if labels.get(MANAGED_LABEL) != MANAGED or labels.get(ISOLATION_LABEL, "") == isolation:
        return False
    patch = {
        "metadata": {
            # Neither a class without the label nor another one of the name is changed.
            "resourceVersion": found.metadata.resource_version,
            "labels": {ISOLATION_LABEL: isolation or None},
        }
    }
    await client.patch(RUNTIME_CLASSES, found.metadata.name, patch)
    log.info("runtime class completed", name=found.metadata.name, isolation=isolation)
    return True


async def _create(client: Client, name: str, isolation: str) -> bool:
    """Create a class. Return False if it exists, or if the API refuses it, which is logged."""
    labels = {MANAGED_BY_LABEL: MANAGER, MANAGED_LABEL: MANAGED}
    if isolation:
        labels[ISOLATION_LABEL] = isolation
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
    metadata = {
        "name": RECORD,
        "namespace": RECORD_NAMESPACE,
        "labels": {MANAGED_BY_LABEL: MANAGER},
    }
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
