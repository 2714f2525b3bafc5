"""Foreign objects of a namespace: what others put there, and what would go with the namespace.

All namespaced kinds that the server serves are listed, by metadata alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from moorage.api.conditions import is_ready
from moorage.api.errors import NotFoundError, StatusError
from moorage.api.meta import ObjectMeta, OwnerReference
from moorage.api.pods import Pod
from moorage.api.runtime_group import PROBE_LABEL
from moorage.api.text import printable
from moorage.attach.belongings import has_name_of_ours
from moorage.attach.detach_options import Leftover
from moorage.attach.manifests.identity import (
    COMPONENT_LABEL,
    MOORAGE,
    NAME_LABEL,
    OURS,
    PART_OF_LABEL,
    RUNTIME_AGENT,
)
from moorage.attach.manifests.runtime_agent import DATA_DIRECTORY
from moorage.wire.client.discovery import discover
from moorage.wire.client.resources import PODS
from moorage.wire.client.rest import Client, UnreachableError

# Kept directories: on which nodes an agent's directory stays, with what the agent wrote of it.

_MOST_READ = 10
_LINES = "20"
_WARNING = " warning "
_LONGEST = 500
_MOST_BYTES = 1024 * 1024
"""Limit on a log: a node may send any number of bytes for its last lines."""


async def kept_directories(client: Client, namespace: str) -> list[Leftover]:
    """Return the files that stay on nodes whose agents should remove them and are not ready.

    Reads the logs of the first ten. Raises StatusError, UnreachableError if pods cannot be listed.
    """
    selector = f"{OURS},{COMPONENT_LABEL}={RUNTIME_AGENT}"
    listed = await client.list(PODS, namespace=namespace, label_selector=selector)
    pods = [pod for pod in listed.items if not is_ready(pod.status.conditions)]
    if not pods:
        return [Leftover(f"{DATA_DIRECTORY} on some nodes", "their agents did not remove it")]
    pods.sort(key=lambda pod: pod.spec.node_name)
    reasons = await asyncio.gather(*(_reason(client, pod) for pod in pods[:_MOST_READ]))
    left = [
        Leftover(
            f"{DATA_DIRECTORY} on node {pod.spec.node_name or '(none)'}",
            f"its agent did not remove it: {reason or 'it did not say why'}",
        )
        for pod, reason in zip(pods, reasons, strict=False)
    ]
    if more := len(pods) - len(left):
        left.append(Leftover(f"{DATA_DIRECTORY} on {more} nodes more", "the same may hold there"))
    return left


async def _reason(client: Client, pod: Pod) -> str:
    """Return the last lines of the agent's log, empty if it cannot be read."""
    path = PODS.path(pod.metadata.namespace, pod.metadata.name, "log")
    try:
        body = await client.request(
            "GET", path, query={"tailLines": _LINES}, accept="*/*", most_bytes=_MOST_BYTES
        )
    except (StatusError, UnreachableError) as error:
        return f"its log cannot be read: {error}"
    return reason_of_log(body.decode(errors="replace"))


def reason_of_log(text: str) -> str:
    """Return the last warning of a log, else its last line, on one line and not too long.

    A line is that of `api/logs.py`: time, level, logger, text and fields.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    warnings = [line for line in lines if _WARNING in line]
    last = (warnings or lines or [""])[-1]
    _, is_warning, rest = last.partition(_WARNING)
    return printable((rest.partition(" ")[2] if is_warning else last).strip()[:_LONGEST])


_IN_EVERY_NAMESPACE = frozenset(
    (
        ("ConfigMap", "kube-root-ca.crt"),
        ("ConfigMap", "openshift-service-ca.crt"),
        ("ConfigMap", "istio-ca-root-cert"),
        ("ServiceAccount", "default"),
        ("ServiceAccount", "builder"),
        ("ServiceAccount", "deployer"),
        ("RoleBinding", "system:deployers"),
        ("RoleBinding", "system:image-builders"),
        ("RoleBinding", "system:image-pullers"),
    )
)
"""What controllers put into each namespace, by itself."""
_RECORDS = frozenset((("", "Event"), ("events.k8s.io", "Event")))
"""Groups and kinds of objects that say what happened, and end by themselves."""
_MOST = 1000


async def foreign_objects(client: Client, namespace: str) -> list[str]:
    """Return the foreign objects of a namespace, at most 1,000 of a kind, as `KIND NAME`.

    A kind that cannot be listed counts as one, with the reason. Raises StatusError and
    UnreachableError where the server does not say which kinds it has.
    """
    discovered = await discover(client)
    found = [f"{version}, which cannot be read: {why}" for version, why in discovered.failures]
    kinds = frozenset(
        (one.resource.group, one.resource.kind)
        for one in discovered.served
        if one.resource.is_namespaced
    )
    for resource in discovered.with_verbs("list", "delete"):
        # There may be very many records.
        if not resource.is_namespaced or (resource.group, resource.kind) in _RECORDS:
            continue
        names: list[str] = []
        try:
            async for page in client.pages(resource, namespace):
                names += [
                    one.metadata.name
                    for one in page.items
                    if is_foreign_object(resource.kind, one.metadata, kinds)
                ]
                if len(names) > _MOST:
                    break
        except NotFoundError:
            # Its definition has just gone.
            continue
        except StatusError as error:
            found.append(f"{resource.kind}, which cannot be listed: {error}")
            continue
        found += [f"{resource.kind} {name}" for name in names[:_MOST]]
    return sorted(found)


def is_foreign_object(kind: str, meta: ObjectMeta, namespaced: Collection[tuple[str, str]]) -> bool:
    """Return whether an object in a namespace of ours is of others.

    Those that another object of the namespace owns come and go with it; its kind is one of
    `namespaced`, groups and kinds. An owner that is in no namespace outlives this one.
    """
    labels = meta.labels
    is_labelled = labels.get(PART_OF_LABEL) == labels.get(NAME_LABEL) == MOORAGE
    return not (
        is_labelled
        or PROBE_LABEL in labels
        or any(_kind_of(owner) in namespaced for owner in meta.owner_references)
        or (kind, meta.name) in _IN_EVERY_NAMESPACE
        or has_name_of_ours(kind, meta.name)
    )


def _kind_of(owner: OwnerReference) -> tuple[str, str]:
    group, slash, _ = owner.api_version.partition("/")
    return (group if slash else "", owner.kind)
