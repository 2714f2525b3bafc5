"""Subjects of statistics: containers and sandboxes, as far as measuring needs them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from moorage.engine.cgroups.usage import Usage
from moorage.engine.labels import has_labels
from moorage.wire.cri import pb

LayerUsage = tuple[int, int]
"""Bytes and inodes."""


@dataclass(frozen=True, slots=True)
class SharedCgroup:
    """The cgroup that holds all running containers of a pod, and their number.

    `guest` is the cgroup of the pod's virtual machine if it is outside the pod's.
    """

    path: str
    containers: int
    guest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSubject:
    """A container. `cgroup` is its path in the hierarchies.

    `shared` is there where a pod may have a kernel of its own: what counts when `cgroup` has used
    nothing. `own_usage` returns what the runtime itself counts, None where it counts nothing; it
    takes the place of both.

    `writable_usage` returns the bytes and inodes of its writable layer, and raises OSError when
    they are unknown; `layers` is a directory of the file system it is on. `limits` are the
    container's resources, for metrics.
    """

    id: str
    sandbox_id: str
    metadata: pb.ContainerMetadata
    cgroup: str
    layers: Path
    writable_usage: Callable[[], Awaitable[LayerUsage]]
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    started_at_ns: int = 0
    limits: pb.LinuxContainerResources | None = None
    shared: SharedCgroup | None = None
    own_usage: Callable[[], Awaitable[Usage | None]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSubject:
    """A sandbox with its containers.

    `cgroup` is the pod's own, None when it shares its parent with others: then the sum of its
    containers is reported. `guest` is the cgroup of its virtual machine if it is outside the pod's;
    its usage counts as the pod's. `netns` is the file that pins its network namespace, None on the
    host's network.
    """

    id: str
    metadata: pb.PodSandboxMetadata
    cgroup: str | None
    netns: Path | None
    guest: str | None = None
    containers: tuple[ContainerSubject, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


# Filters of statistics. Pure. Source: CRI `*StatsFilter`.


def select_containers(
    subjects: Iterable[ContainerSubject], filter_: pb.ContainerStatsFilter | None
) -> list[ContainerSubject]:
    """Return the containers that match every part of the filter; an empty part matches all.

    An id may be abbreviated, as everywhere in the CRI.
    """
    if filter_ is None:
        return list(subjects)
    return [
        subject
        for subject in subjects
        if subject.id.startswith(filter_.id)
        and subject.sandbox_id.startswith(filter_.pod_sandbox_id)
        and has_labels(subject.labels, filter_.label_selector)
    ]


def select_sandboxes(
    subjects: Iterable[SandboxSubject], filter_: pb.PodSandboxStatsFilter | None
) -> list[SandboxSubject]:
    """Return the sandboxes that match every part of the filter, as `select_containers`."""
    if filter_ is None:
        return list(subjects)
    return [
        subject
        for subject in subjects
        if subject.id.startswith(filter_.id) and has_labels(subject.labels, filter_.label_selector)
    ]
