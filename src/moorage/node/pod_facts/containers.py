"""Containers of a pod by kind, and their restart policies.

Pure. Source: core/v1 Pod, KEP-753 (sidecars), KEP-5307 (container restart rules).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from moorage.api.containers import Container
from moorage.api.pods import PodSpec
from moorage.node.pod_facts.labels import AnyContainer
from moorage.runtimeclass.overhead import is_sidecar

# Pod phases. Source: core/v1 PodPhase.

FAILED = "Failed"
SUCCEEDED = "Succeeded"
RUNNING = "Running"
PENDING = "Pending"
TERMINAL = frozenset({FAILED, SUCCEEDED})


ALWAYS = "Always"
ON_FAILURE = "OnFailure"
NEVER = "Never"


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
    return next((container for container in members(spec) if container.name == name), None)


def sidecars(spec: PodSpec) -> tuple[Container, ...]:
    """Return the sidecars in order: init containers with the restart policy Always."""
    return tuple(container for container in spec.init_containers if is_sidecar(container))


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
