"""API groups and versions with their kinds, in discovery order.

The order decides which of two groups a resource name without a group selects. Source:
kube-aggregator's `groupPriorityMinimum` table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from moorage.registry.kind import Kind, Served

_PRIORITIES = {
    "": 18000,
    "apiregistration.k8s.io": 17900,
    "apps": 17800,
    "events.k8s.io": 17750,
    "authentication.k8s.io": 17700,
    "authorization.k8s.io": 17600,
    "autoscaling": 17500,
    "batch": 17400,
    "certificates.k8s.io": 17300,
    "networking.k8s.io": 17200,
    "policy": 17100,
    "rbac.authorization.k8s.io": 17000,
    "storage.k8s.io": 16800,
    "admissionregistration.k8s.io": 16700,
    "apiextensions.k8s.io": 16700,
    "scheduling.k8s.io": 16600,
    "coordination.k8s.io": 16500,
    "node.k8s.io": 16300,
    "discovery.k8s.io": 16200,
    "resource.k8s.io": 16200,
    "flowcontrol.apiserver.k8s.io": 16100,
    "storagemigration.k8s.io": 15800,
    # Last: `deployments` without a group must select the current API.
    "extensions": 100,
}
_OTHERS = 1000
_VERSION = re.compile(r"v(\d+)(?:(beta|alpha)(\d+))?")
_STAGES = ("", "beta", "alpha")


@dataclass(frozen=True, slots=True)
class Version:
    """A group-version and the kinds it serves, by plural name."""

    group: str
    version: str
    resources: tuple[tuple[Kind, Served], ...]

    @property
    def group_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


@dataclass(frozen=True, slots=True)
class Group:
    """A group; its first version is the preferred one."""

    name: str
    versions: tuple[Version, ...]


def grouped(resources: Iterable[tuple[Kind, Served]]) -> tuple[Group, ...]:
    """Return the groups in order of priority; the core group is the first."""
    by_group: dict[str, dict[str, list[tuple[Kind, Served]]]] = {}
    for kind, served in resources:
        versions = by_group.setdefault(served.group, {})
        versions.setdefault(served.version, []).append((kind, served))
    groups = [
        Group(
            name,
            tuple(
                Version(
                    name, version, tuple(sorted(resources, key=lambda resource: resource[0].plural))
                )
                for version, resources in sorted(versions.items(), key=lambda item: _age(item[0]))
            ),
        )
        for name, versions in by_group.items()
    ]
    return tuple(
        sorted(groups, key=lambda group: (-_PRIORITIES.get(group.name, _OTHERS), group.name))
    )


def _age(version: str) -> tuple[int, int, int]:
    """Return the sort key of a version: stable, beta, alpha; in each the highest number first.

    Source: API docs "Version priority" of CustomResourceDefinitions.
    """
    match = _VERSION.fullmatch(version)
    if match is None:
        raise ValueError(f"not an API version: {version}")
    major, stage, minor = match.groups()
    return _STAGES.index(stage or ""), -int(major), -int(minor or 0)


def is_former_home(kind: Kind, served: Served) -> bool:
    """Return whether a kind is served here only for old manifests: its home is another group."""
    return served.group != kind.group
