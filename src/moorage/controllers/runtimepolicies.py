"""RuntimePolicies: the label by which floors fail closed on other API servers."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.clock import Clock
from moorage.api.errors import ConflictError, NotFoundError
from moorage.api.logs import Log
from moorage.api.meta import Object, Raw
from moorage.api.names import Namespace
from moorage.api.runtime_group import (
    ENFORCE_LABEL,
    ENFORCED_FOR_ANNOTATION,
    ClusterRuntimePolicy,
    RuntimePolicy,
)
from moorage.controllers.informers import NAMESPACE, Informers
from moorage.controllers.loop import Loop
from moorage.runtimeclass.policies import effective_policy, restricting_policies
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import CLUSTER_RUNTIME_POLICIES, NAMESPACES, RUNTIME_POLICIES
from moorage.wire.client.rest import Client, PatchType

# Floor label controller: labels the namespaces whose pods a policy restricts.
#
# Beside an API server that is not Moorage's, policies are kept by a webhook. With the label
# `runtime.moorage.dev/enforce=true` no pod is created in a namespace while the webhook is away;
# without it, pods that name no class are admitted unseen, which a floor must not allow. The label
# is removed with the last floor and allow-list, unless a user wrote it. Source: decision 143.

log = Log(__name__)

_WORKERS = 5
_MOST_CHARACTERS = 1000


class FloorLabelController:
    """Watches namespaces and policies of both kinds."""

    def __init__(self, client: Client, informers: Informers, clock: Clock) -> None:
        self._client = client
        self._namespaces: Informer[Namespace] = informers.namespaces
        self._cluster: Informer[ClusterRuntimePolicy] = Informer(
            client, CLUSTER_RUNTIME_POLICIES, clock=clock
        )
        self._own: Informer[RuntimePolicy] = Informer(
            client,
            RUNTIME_POLICIES,
            clock=clock,
            indexes={NAMESPACE: lambda policy: (policy.metadata.namespace,)},
        )
        self.run = Loop(
            "floor labels",
            self._reconcile,
            [
                (self._namespaces, self._namespace_changed),
                (self._cluster, self._cluster_changed),
                (self._own, self._own_changed),
            ],
            clock,
            owned=[self._cluster, self._own],
            workers=_WORKERS,
        ).run

    def _namespace_changed(
        self, before: Namespace | None, after: Namespace | None
    ) -> Iterator[str]:
        if after is not None and (before is None or before.metadata != after.metadata):
            yield after.metadata.name

    def _cluster_changed(self, before: Object | None, after: Object | None) -> Iterator[str]:
        del before, after
        for namespace in self._namespaces:
            yield namespace.metadata.name

    def _own_changed(
        self, before: RuntimePolicy | None, after: RuntimePolicy | None
    ) -> Iterator[str]:
        for policy in (before, after):
            if policy is not None:
                yield policy.metadata.namespace

    async def _reconcile(self, name: str) -> None:
        namespace = self._namespaces.get(name)
        if namespace is None or namespace.metadata.deletion_timestamp is not None:
            return
        policy = effective_policy(
            namespace.metadata.labels, self._cluster, self._own.by_index(NAMESPACE, name)
        )
        patch = label_patch(namespace, ", ".join(restricting_policies(policy))[:_MOST_CHARACTERS])
        if patch is None:
            return
        try:
            await self._client.patch(NAMESPACES, name, patch, kind=PatchType.MERGE)
        except (NotFoundError, ConflictError):
            return  # It is gone, or its change comes by the watch.
        log.info("floor label changed", namespace=name, labels=patch["metadata"]["labels"])


def label_patch(namespace: Namespace, policies: str) -> Raw | None:
    """Return the merge patch of a namespace that `policies` restrict, by name, "" for none.

    None where the label is as it should be, or is a user's own.
    """
    meta = namespace.metadata
    label = meta.labels.get(ENFORCE_LABEL)
    written_for = meta.annotations.get(ENFORCED_FOR_ANNOTATION)
    if label is not None and (written_for is None or label != "true"):
        return None
    if (label == "true" and policies == written_for) or (label is None and not policies):
        return None
    return {
        "metadata": {
            "resourceVersion": meta.resource_version,
            "labels": {ENFORCE_LABEL: "true" if policies else None},
            "annotations": {ENFORCED_FOR_ANNOTATION: policies or None},
        }
    }
