"""Questions about a pod's specification that several parts of its life ask.

Pure readings of the typed pod: which containers there are and of which kind, what a text calls a
pod, how long a duration is in words. Source: core/v1 Pod; kubelet `util/format`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import msgspec

from moorage.api.containers import Container
from moorage.api.pods import Pod, PodSpec
from moorage.api.qos import qos_class
from moorage.node.runtime.labels import AnyContainer
from moorage.runtimeclass.overhead import is_sidecar

ALWAYS = "Always"
ON_FAILURE = "OnFailure"
NEVER = "Never"

FAILED = "Failed"
SUCCEEDED = "Succeeded"
RUNNING = "Running"
PENDING = "Pending"
TERMINAL = frozenset({FAILED, SUCCEEDED})

CONFIG_SOURCE = "kubernetes.io/config.source"
CONFIG_MIRROR = "kubernetes.io/config.mirror"
FILE_SOURCE = "file"

_DEFAULT_GRACE_S = 30


class Kind(Enum):
    """What a container is in its pod; the value is the metric's label."""

    INIT = "init_container"
    MAIN = "container"
    EPHEMERAL = "ephemeral_container"


_FIELDS = {
    Kind.INIT: "initContainers",
    Kind.MAIN: "containers",
    Kind.EPHEMERAL: "ephemeralContainers",
}


@dataclass(frozen=True, slots=True)
class Member:
    """A container and its kind."""

    kind: Kind
    container: AnyContainer

    @property
    def name(self) -> str:
        return self.container.name

    @property
    def field_path(self) -> str:
        """How events point at it: `spec.containers{app}`."""
        return f"spec.{_FIELDS[self.kind]}{{{self.container.name}}}"


def members(spec: PodSpec) -> Iterator[Member]:
    """Every container of a pod: main, init, ephemeral."""
    for container in spec.containers:
        yield Member(Kind.MAIN, container)
    for container in spec.init_containers:
        yield Member(Kind.INIT, container)
    for ephemeral in spec.ephemeral_containers:
        yield Member(Kind.EPHEMERAL, ephemeral)


def member(spec: PodSpec, name: str) -> Member | None:
    return next((each for each in members(spec) if each.name == name), None)


def sidecars(spec: PodSpec) -> tuple[Container, ...]:
    """The init containers that keep running beside the main ones, in order."""
    return tuple(each for each in spec.init_containers if is_sidecar(each))


def described(pod: Pod) -> str:
    """`name_namespace(uid)`, the way messages call a pod."""
    meta = pod.metadata
    return f"{meta.name}_{meta.namespace}({meta.uid})"


def quality(pod: Pod) -> str:
    """The pod's QoS class: as the API server stored it, else computed."""
    return pod.status.qos_class or qos_class(msgspec.to_builtins(pod.spec))


def grace_period_s(pod: Pod) -> int:
    """Seconds a container may take to end: what the deletion says, else the specification."""
    if pod.metadata.deletion_grace_period_seconds is not None:
        return pod.metadata.deletion_grace_period_seconds
    grace = pod.spec.termination_grace_period_seconds
    return _DEFAULT_GRACE_S if grace is None else grace


def is_static(pod: Pod) -> bool:
    """Whether it comes from a file on this node."""
    return pod.metadata.annotations.get(CONFIG_SOURCE) == FILE_SOURCE


def is_mirror(pod: Pod) -> bool:
    """Whether it only shows a static pod to the API's readers."""
    return CONFIG_MIRROR in pod.metadata.annotations


def should_restart(container: AnyContainer, spec: PodSpec, exit_code: int) -> bool:
    """Whether a container that ended with this code runs again.

    The container's own rules and policy come before the pod's. Source: KEP-5307.
    """
    if container.restart_policy is not None:
        for rule in container.restart_policy_rules:
            if rule.exit_codes is not None and rule.action == "Restart":
                is_listed = exit_code in rule.exit_codes.values
                if is_listed == (rule.exit_codes.operator == "In"):
                    return True
    policy = container.restart_policy or spec.restart_policy
    if policy == NEVER:
        return False
    return policy != ON_FAILURE or exit_code != 0


def may_restart(container: AnyContainer, spec: PodSpec) -> bool:
    """Whether any exit code makes the container run again."""
    if container.restart_policy is not None and container.restart_policy_rules:
        return True
    return (container.restart_policy or spec.restart_policy) != NEVER


def spoken_seconds(seconds: float) -> str:
    """A duration as Go prints it: `10s`, `2m40s`, `1h0m0s`, `250ms`."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:g}ms"
    whole = int(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    fraction = seconds - whole
    shown = f"{left + round(fraction, 9):g}s"
    if hours:
        return f"{hours}h{minutes}m{shown}"
    return f"{minutes}m{shown}" if minutes else shown
