"""Needed rights: what `moor attach` and `moor detach` do in a cluster, as rights. Pure.

tests/attach/test_needed_rights.py compares them with what an API server was asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from moorage.attach.class_uses import TEMPLATE_RESOURCES
from moorage.attach.manifests import KINDS, WORKLOADS
from moorage.attach.manifests.identity import FOLLOW, Obj
from moorage.attach.manifests.webhook import SECRET
from moorage.attach.user_rights import Kind, Right, rights_on, rights_to
from moorage.attach.values import OWN, Values
from moorage.runtimes.custom_resources.installation import CUSTOM_RESOURCE_DEFINITIONS
from moorage.wire.client.resources import (
    CLUSTER_RUNTIME_POLICIES,
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    RUNTIME_CLASS_QUOTAS,
    RUNTIME_CLASSES,
    RUNTIME_INSTALLATIONS,
    RUNTIME_POLICIES,
    RUNTIME_PROFILES,
    RUNTIME_ROLLOUTS,
    SECRETS,
    STATEFUL_SETS,
    Resource,
)

_FOLLOWED = (DEPLOYMENTS, DAEMON_SETS, PODS, EVENTS)
"""What is watched in a namespace while parts start and end."""
_MARKED = (
    NAMESPACES, NODES, PODS, DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS, CRON_JOBS, REPLICA_SETS,
)  # fmt: skip
"""What the parts write labels, annotations and gates on."""
_OF_USERS = (
    CLUSTER_RUNTIME_POLICIES, RUNTIME_CLASS_QUOTAS, RUNTIME_INSTALLATIONS, RUNTIME_POLICIES,
    RUNTIME_PROFILES, RUNTIME_ROLLOUTS,
)  # fmt: skip


def attach_rights(
    values: Values, wanted: Sequence[Obj], resources: Mapping[Kind, Resource[Any]]
) -> Iterator[Right]:
    """Yield the rights that an attachment of the wanted objects needs, but for removals.

    resources: those of the kinds that the API server serves.
    """
    namespaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": values.namespace}}]
    yield from rights_on(resources, [*namespaces, *wanted], ["get"])
    # An apply creates what is not there.
    yield from rights_on(resources, wanted, ["create", "patch"])
    yield from rights_to(["list"], _labelled(resources))
    yield from rights_to(["list"], (NODES, PODS, RUNTIME_CLASSES))
    yield from rights_to(FOLLOW, (CUSTOM_RESOURCE_DEFINITIONS, RUNTIME_PROFILES))
    yield from rights_to(FOLLOW, _FOLLOWED, namespace=values.namespace)
    if values.certificates == OWN:
        yield Right("get", SECRETS.group, SECRETS.plural, values.namespace, (SECRET,))


def look_rights(resources: Mapping[Kind, Resource[Any]]) -> Iterator[Right]:
    """Yield the rights that a detachment needs to read its objects."""
    yield from rights_to(["list"], _labelled(resources))
    listed: tuple[Resource[Any], ...] = (*_MARKED, *TEMPLATE_RESOURCES, RUNTIME_CLASSES, *_OF_USERS)
    yield from rights_to(["list"], dict.fromkeys(listed))


def detach_rights(
    found: Sequence[Obj], made: Iterable[Obj], resources: Mapping[Kind, Resource[Any]]
) -> Iterator[Right]:
    """Yield the rights that a detachment needs to remove what it found.

    made: what the parts made for themselves. Traces on objects of others may be written until the
    parts have ended, so that the rights to remove them are needed whether there are any or not.
    """
    yield from rights_on(resources, [*found, *made], ["delete"])
    yield from rights_to(FOLLOW, (NAMESPACES, CUSTOM_RESOURCE_DEFINITIONS, RUNTIME_INSTALLATIONS))
    yield from rights_to(["patch"], (*_MARKED, RUNTIME_CLASSES, *_OF_USERS))
    yield from rights_to(["patch"], (NODES, PODS), subresource="status")
    yield from rights_to(["get"], (PODS,))
    yield from rights_to(["delete"], (RUNTIME_CLASSES, RUNTIME_INSTALLATIONS))
    for namespace in sorted(
        {obj["metadata"].get("namespace", "") for obj in found if obj["kind"] in WORKLOADS}
    ):
        yield from rights_to(FOLLOW, _FOLLOWED, namespace=namespace)


def _labelled(resources: Mapping[Kind, Resource[Any]]) -> Iterator[Resource[Any]]:
    for kind in KINDS:
        if kind in resources:
            yield resources[kind]
