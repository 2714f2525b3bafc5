"""Pod spec helpers shared by the parts of a pod's lifecycle.

Pure: containers and their kinds, a pod's name in messages, duration formatting. Source: core/v1
Pod; kubelet `util/format`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import msgspec

from moorage.api.containers import Container
from moorage.api.pods import Pod, PodSpec
from moorage.api.qos import qos_class
from moorage.node.pod_facts.labels import AnyContainer
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
    """Kind of a container in its pod; the value is the metric's label."""

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
        """Field path of the container in events: `spec.containers{app}`."""
        return f"spec.{_FIELDS[self.kind]}{{{self.container.name}}}"


def members(spec: PodSpec) -> Iterator[Member]:
    """Yield every container of a pod: main, init, ephemeral."""
    for container in spec.containers:
        yield Member(Kind.MAIN, container)
    for container in spec.init_containers:
        yield Member(Kind.INIT, container)
    for ephemeral in spec.ephemeral_containers:
        yield Member(Kind.EPHEMERAL, ephemeral)


def member(spec: PodSpec, name: str) -> Member | None:
    """Return the container of that name; None if the pod has none."""
    return next((each for each in members(spec) if each.name == name), None)


def sidecars(spec: PodSpec) -> tuple[Container, ...]:
    """Return the sidecars in order: init containers with the restart policy Always."""
    return tuple(each for each in spec.init_containers if is_sidecar(each))


def described(pod: Pod) -> str:
    """Return `name_namespace(uid)`, the form in which messages name a pod."""
    meta = pod.metadata
    return f"{meta.name}_{meta.namespace}({meta.uid})"


def quality(pod: Pod) -> str:
    """Return the pod's QoS class: as the API server stored it, else computed."""
    return pod.status.qos_class or qos_class(msgspec.to_builtins(pod.spec))


def grace_period_s(pod: Pod) -> int:
    """Return the grace period in seconds: that of the deletion, else that of the spec."""
    if pod.metadata.deletion_grace_period_seconds is not None:
        return pod.metadata.deletion_grace_period_seconds
    grace = pod.spec.termination_grace_period_seconds
    return _DEFAULT_GRACE_S if grace is None else grace


def is_static(pod: Pod) -> bool:
    """Return whether the pod comes from a file on this node."""
    return pod.metadata.annotations.get(CONFIG_SOURCE) == FILE_SOURCE


def is_mirror(pod: Pod) -> bool:
    """Return whether the pod is the API's mirror of a static pod."""
    return CONFIG_MIRROR in pod.metadata.annotations


def should_restart(container: AnyContainer, spec: PodSpec, exit_code: int) -> bool:
    """Return whether a container that ended with this exit code is restarted.

    The container's own rules and policy override the pod's. Source: KEP-5307.
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
    """Return whether any exit code leads to a restart of the container."""
    if container.restart_policy is not None and container.restart_policy_rules:
        return True
    return (container.restart_policy or spec.restart_policy) != NEVER


def spoken_seconds(seconds: float) -> str:
    """Format a duration as Go prints it: `10s`, `2m40s`, `1h0m0s`, `250ms`."""
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
