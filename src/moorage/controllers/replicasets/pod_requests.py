"""Creation and deletion of pods for their controller, with the events that report it.

Source: `PodControlInterface`; the events' reasons and messages are what users and tools look for.
"""

from __future__ import annotations

from typing import Any

from moorage.api.errors import NotFoundError, StatusError
from moorage.api.meta import ObjectMeta
from moorage.api.names import dns_subdomain_errors
from moorage.api.workloads import ReplicaSet
from moorage.client import Client, EventRecorder
from moorage.client.recorder import NORMAL, WARNING, reference
from moorage.client.resources import REPLICA_SETS
from moorage.client.rest import UnreachableError
from moorage.controllers.objects import PODS, Pod
from moorage.controllers.ownership import controller_reference
from moorage.controllers.refusals import is_namespace_ending


def pod_of(replica_set: ReplicaSet) -> dict[str, Any]:
    """Return the pod of the set's template, as JSON, controlled by the set."""
    template = replica_set.spec.template
    described = template.get("metadata") or {}
    copied = ("labels", "annotations", "finalizers")
    return {
        "metadata": {
            "generateName": name_prefix(replica_set.metadata),
            "namespace": replica_set.metadata.namespace,
            **{key: described[key] for key in copied if described.get(key)},
            "ownerReferences": [controller_reference(REPLICA_SETS, replica_set.metadata)],
        },
        "spec": template.get("spec") or {},
    }


def name_prefix(meta: ObjectMeta) -> str:
    """Return `NAME-`, or the bare name where that prefix makes an invalid pod name."""
    return f"{meta.name}-" if not dns_subdomain_errors(f"{meta.name}-a") else meta.name


class PodRequests:
    """Creates and deletes the pods of ReplicaSets and records the events."""

    def __init__(self, client: Client, recorder: EventRecorder) -> None:
        self._client = client
        self._recorder = recorder

    async def create(self, replica_set: ReplicaSet) -> None:
        """Create a pod of the set.

        Raises StatusError or UnreachableError, after an event unless the namespace is terminating.
        """
        about = reference(REPLICA_SETS, replica_set)
        body = pod_of(replica_set)
        try:
            pod = await self._client.create(PODS, body, replica_set.metadata.namespace)
        except (StatusError, UnreachableError) as error:
            if not is_namespace_ending(error):
                self._recorder.record(about, WARNING, "FailedCreate", f"Error creating: {error}")
            raise
        message = f"Created pod: {pod.metadata.name}"
        self._recorder.record(about, NORMAL, "SuccessfulCreate", message)

    async def delete(self, replica_set: ReplicaSet, pod: Pod) -> None:
        """Delete a pod of the set.

        Raises StatusError or UnreachableError, after an event unless the pod is gone.
        """
        about = reference(REPLICA_SETS, replica_set)
        name, namespace = pod.metadata.name, pod.metadata.namespace
        try:
            await self._client.delete(PODS, name, namespace, uid=pod.metadata.uid)
        except NotFoundError:
            raise
        except (StatusError, UnreachableError) as error:
            self._recorder.record(about, WARNING, "FailedDelete", f"Error deleting: {error}")
            raise
        self._recorder.record(about, NORMAL, "SuccessfulDelete", f"Deleted pod: {name}")
