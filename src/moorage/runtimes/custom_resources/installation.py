"""Installation of the custom resources on an API server, repeated at each start.

Server-side apply keeps what others added, and brings the definitions of another version up to date.
A digest on each definition says that it is the present one, which costs a read at a restart.
"""

from __future__ import annotations

import contextlib
import hashlib

import msgspec

from moorage.api.clock import Clock
from moorage.api.conditions import is_true
from moorage.api.errors import ExpiredError
from moorage.api.meta import Condition, Object, ObjectMeta, Raw
from moorage.api.runtime_group import GROUP
from moorage.runtimes.custom_resources.definitions import definition_names, definitions
from moorage.wire.client.informer import Informer
from moorage.wire.client.queue import wait_until
from moorage.wire.client.resources import Resource
from moorage.wire.client.rest import Client, PatchType

_FIELD_MANAGER = "moorage"
_ESTABLISHED = "Established"
# Helm writes its own name into the label managed-by.
_OURS = "app.kubernetes.io/part-of=moorage"
_DIGEST_ANNOTATION = f"{GROUP}/definition"


class _DefinitionStatus(Object, frozen=True):
    conditions: tuple[Condition, ...] = ()


class CustomResourceDefinition(Object, frozen=True):
    """What the installation reads of a definition."""

    metadata: ObjectMeta = ObjectMeta()
    status: _DefinitionStatus = _DefinitionStatus()


CUSTOM_RESOURCE_DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition",
    CustomResourceDefinition, is_namespaced=False,
)  # fmt: skip


async def install_definitions(client: Client) -> None:
    """Apply all definitions, and return when the server serves their kinds.

    Raises StatusError, UnreachableError.
    """
    stored = await client.list(CUSTOM_RESOURCE_DEFINITIONS, label_selector=_OURS)
    present = {item.metadata.name: item for item in stored.items}
    applied = [
        await _apply(client, definition, present.get(definition["metadata"]["name"]))
        for definition in definitions()
    ]
    for definition in applied:
        await _wait_established(client, definition)


async def wait_installed(client: Client, clock: Clock) -> None:
    """Return once the server serves the kinds of all definitions, which another program applies."""
    names = definition_names()
    informer = Informer(client, CUSTOM_RESOURCE_DEFINITIONS, label_selector=_OURS, clock=clock)
    await wait_until(
        informer,
        lambda found: names <= {one.metadata.name for one in found if is_established(one)},
    )


async def _apply(
    client: Client, definition: Raw, present: CustomResourceDefinition | None
) -> CustomResourceDefinition:
    """Apply a definition if the server's is not the same. Returns the server's."""
    digest = hashlib.sha256(msgspec.json.encode(definition, order="sorted")).hexdigest()
    if present is not None and present.metadata.annotations.get(_DIGEST_ANNOTATION) == digest:
        return present
    metadata = definition["metadata"] | {"annotations": {_DIGEST_ANNOTATION: digest}}
    return await client.patch(
        CUSTOM_RESOURCE_DEFINITIONS,
        metadata["name"],
        definition | {"metadata": metadata},
        kind=PatchType.APPLY,
        field_manager=_FIELD_MANAGER,
        force=True,
    )


async def _wait_established(client: Client, definition: CustomResourceDefinition) -> None:
    """Return once the definition is established. Raises NotFoundError if it is deleted."""
    name = definition.metadata.name
    while not is_established(definition):
        with contextlib.suppress(ExpiredError):
            async for event in client.watch(
                CUSTOM_RESOURCE_DEFINITIONS,
                resource_version=definition.metadata.resource_version,
                field_selector=f"metadata.name={name}",
            ):
                if event.object is not None:
                    break
        definition = await client.get(CUSTOM_RESOURCE_DEFINITIONS, name)


def is_established(definition: CustomResourceDefinition) -> bool:
    """Return whether the server serves the kind of a definition."""
    return is_true(definition.status.conditions, _ESTABLISHED)
