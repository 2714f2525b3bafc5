"""Container and sandbox labels and annotations, for adoption by another agent.

The keys and formats are the kubelet's: restart counts, hashes, termination messages and stop hooks
survive a restart of the agent, and either agent adopts the other's containers. Source: kubelet
`kuberuntime/labels.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from moorage.api.containers import (
    Container,
    EphemeralContainer,
    LifecycleHandler,
    ResourceRequirements,
)
from moorage.api.pods import Pod

POD_NAME = "io.kubernetes.pod.name"
POD_NAMESPACE = "io.kubernetes.pod.namespace"
POD_UID = "io.kubernetes.pod.uid"
CONTAINER_NAME = "io.kubernetes.container.name"
OWNER = "moorage.dev/node"
"""The agent that created a sandbox, as returned by `owner_of`: no other agent may remove it.

Always overrides a value set by the pod's author.
"""

RUNTIME_CLASS = "moorage.dev/runtime-class"
RUNTIME_HANDLER = "moorage.dev/runtime-handler"
"""Annotations of a sandbox: its pod's class and its handler. CRI-O does not report the handler."""

HASH = "io.kubernetes.container.hash"
RESTART_COUNT = "io.kubernetes.container.restartCount"
MESSAGE_PATH = "io.kubernetes.container.terminationMessagePath"
MESSAGE_POLICY = "io.kubernetes.container.terminationMessagePolicy"
PORTS = "io.kubernetes.container.ports"
PRE_STOP = "io.kubernetes.container.preStopHandler"
DELETION_GRACE = "io.kubernetes.pod.deletionGracePeriod"
TERMINATION_GRACE = "io.kubernetes.pod.terminationGracePeriod"
RESOURCES = "moorage.dev/resources"
"""Annotation of a container: the resources that it was created with, as a `Given`."""

AnyContainer = Container | EphemeralContainer
_T = TypeVar("_T")

_FNV_OFFSET = 2166136261
_FNV_PRIME = 16777619


class Given(msgspec.Struct, frozen=True):
    """Resources that a container was created with or resized to, and those of its whole pod."""

    resources: ResourceRequirements
    pod: ResourceRequirements | None = None


# Not allowed in node names, so an owner differs from the bare node name of earlier versions.
_OWNER_MARK = "_"


def owner_of(cluster_id: str, node_name: str) -> str:
    """Return the identity of an agent on an engine that several clusters share.

    Node names are not unique: two clusters on one host both name their node after the host.
    """
    return f"{cluster_id}{_OWNER_MARK}{node_name}"


def sandbox_labels(pod: Pod, owner: str) -> dict[str, str]:
    """Return the pod's own labels, its identity, and its agent's owner label."""
    return {**pod.metadata.labels, **_identity(pod), OWNER: owner}


def sandbox_annotations(pod: Pod, handler: str) -> dict[str, str]:
    """Return the pod's own annotations, its class and the handler of its sandbox."""
    recorded = {
        RUNTIME_CLASS: pod.spec.runtime_class_name or "",
        RUNTIME_HANDLER: handler,
    }
    return {**pod.metadata.annotations, **recorded}


def sandbox_handler(
    reported: str, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> str | None:
    """Return the handler of a sandbox; None when neither the engine nor its annotations report it.

    An empty `runtime_handler` means the default handler to some engines and nothing to others. An
    annotation counts only beside an owner label of the current form: earlier versions copied
    annotations as the pod's author wrote them.
    """
    if reported:
        return reported
    if _OWNER_MARK in labels.get(OWNER, ""):
        return annotations.get(RUNTIME_HANDLER)
    return None


def container_labels(pod: Pod, container: AnyContainer) -> dict[str, str]:
    """Return the labels that identify a container and its pod."""
    return {**_identity(pod), CONTAINER_NAME: container.name}


def _identity(pod: Pod) -> dict[str, str]:
    meta = pod.metadata
    return {POD_NAME: meta.name, POD_NAMESPACE: meta.namespace, POD_UID: meta.uid}


def container_annotations(pod: Pod, container: AnyContainer, restart_count: int) -> dict[str, str]:
    """Return the annotations needed to stop and report a container without its pod object."""
    annotations = {
        HASH: f"{container_hash(container):x}",
        RESTART_COUNT: str(restart_count),
        MESSAGE_PATH: container.termination_message_path,
        MESSAGE_POLICY: container.termination_message_policy,
    }
    if pod.metadata.deletion_grace_period_seconds is not None:
        annotations[DELETION_GRACE] = str(pod.metadata.deletion_grace_period_seconds)
    if pod.spec.termination_grace_period_seconds is not None:
        annotations[TERMINATION_GRACE] = str(pod.spec.termination_grace_period_seconds)
    if container.lifecycle is not None and container.lifecycle.pre_stop is not None:
        annotations[PRE_STOP] = msgspec.json.encode(container.lifecycle.pre_stop).decode()
    if container.ports:
        annotations[PORTS] = msgspec.json.encode(container.ports).decode()
    given = Given(container.resources, pod.spec.resources)
    annotations[RESOURCES] = msgspec.json.encode(given).decode()
    return annotations


def container_hash(container: AnyContainer) -> int:
    """Return a hash of the fields whose change replaces the container: name and image.

    FNV-1a (32 bits) over the form in which the kubelet prints the fields it hashes.
    """
    fields = msgspec.json.encode({"image": container.image, "name": container.name})
    printed = f"([]uint8)[{' '.join(str(byte) for byte in fields)}]"
    value = _FNV_OFFSET
    for byte in printed.encode():
        value = ((value ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return value


@dataclass(frozen=True, slots=True)
class ContainerRecord:
    """Values of a container's annotations."""

    hash: int | None
    restart_count: int
    message_path: str
    message_policy: str
    grace_period_s: int | None
    pre_stop: LifecycleHandler | None
    given: Given | None = None


def parse_container_record(annotations: Mapping[str, str]) -> ContainerRecord:
    """Parse a container's annotations; absent or malformed ones count as not set."""
    grace = _number(annotations.get(DELETION_GRACE))
    if grace is None:
        grace = _number(annotations.get(TERMINATION_GRACE))
    return ContainerRecord(
        hash=_number(annotations.get(HASH), base=16),
        restart_count=_number(annotations.get(RESTART_COUNT)) or 0,
        message_path=annotations.get(MESSAGE_PATH, ""),
        message_policy=annotations.get(MESSAGE_POLICY, ""),
        grace_period_s=grace,
        pre_stop=_parsed(annotations.get(PRE_STOP), LifecycleHandler),
        given=_parsed(annotations.get(RESOURCES), Given),
    )


def _number(text: str | None, base: int = 10) -> int | None:
    try:
        return int(text, base) if text is not None else None
    except ValueError:
        return None


def _parsed(text: str | None, type_: type[_T]) -> _T | None:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=type_)
    except (msgspec.DecodeError, RecursionError):
        return None
