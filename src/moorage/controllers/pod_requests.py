"""Pod requests of a controller: creation and deletion, with the events that report them.

Source: `PodControlInterface`; the events' reasons and messages are what users and tools look for.
"""

from __future__ import annotations

from typing import Any

from moorage.api.errors import NotFoundError, StatusError
from moorage.api.meta import ObjectMeta, Raw
from moorage.api.names import dns_subdomain_errors
from moorage.controllers.objects import PODS, Pod
from moorage.controllers.ownership import controller_reference
from moorage.controllers.refusals import is_namespace_ending
from moorage.wire.client.recorder import NORMAL, WARNING, EventRecorder, reference
from moorage.wire.client.resources import Resource
from moorage.wire.client.rest import Client, UnreachableError, meta_of


def pod_of(owners: Resource[Any], owner: ObjectMeta, template: Raw) -> dict[str, Any]:
    """Return the pod of an owner's template, as JSON, controlled by the owner."""
    described = template.get("metadata") or {}
    copied = ("labels", "annotations", "finalizers")
    return {
        "metadata": {
            "generateName": name_prefix(owner),
            "namespace": owner.namespace,
            **{key: described[key] for key in copied if described.get(key)},
            "ownerReferences": [controller_reference(owners, owner)],
        },
        "spec": template.get("spec") or {},
    }


def name_prefix(meta: ObjectMeta) -> str:
    """Return `NAME-`, or the bare name where that prefix makes an invalid pod name."""
    return f"{meta.name}-" if not dns_subdomain_errors(f"{meta.name}-a") else meta.name


class PodRequests:
    """Creates and deletes the pods of the objects of one kind and records the events."""

    def __init__(self, client: Client, recorder: EventRecorder, owners: Resource[Any]) -> None:
        self._client = client
        self._recorder = recorder
        self._owners = owners

    async def create(self, owner: Any, body: dict[str, Any]) -> None:
        """Create a pod of the owner; `body` is the pod as JSON.

        Raises StatusError or UnreachableError, after an event unless the namespace is terminating.
        """
        about = reference(self._owners, owner)
        try:
            pod = await self._client.create(PODS, body, meta_of(owner).namespace)
        except (StatusError, UnreachableError) as error:
            if not is_namespace_ending(error):
                self._recorder.record(about, WARNING, "FailedCreate", f"Error creating: {error}")
            raise
        message = f"Created pod: {pod.metadata.name}"
        self._recorder.record(about, NORMAL, "SuccessfulCreate", message)

    async def delete(self, owner: Any, pod: Pod) -> None:
        """Delete a pod of the owner.

        Raises StatusError or UnreachableError, after an event unless the pod is gone.
        """
        about = reference(self._owners, owner)
        name, namespace = pod.metadata.name, pod.metadata.namespace
        try:
            await self._client.delete(PODS, name, namespace, uid=pod.metadata.uid)
        except NotFoundError:
            raise
        except (StatusError, UnreachableError) as error:
            self._recorder.record(about, WARNING, "FailedDelete", f"Error deleting: {error}")
            raise
        self._recorder.record(about, NORMAL, "SuccessfulDelete", f"Deleted pod: {name}")
