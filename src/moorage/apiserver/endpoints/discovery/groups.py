"""API groups and versions with their kinds, in discovery order.

The order decides which of two groups a resource name without a group selects. Source:
kube-aggregator's `groupPriorityMinimum` table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from moorage.apiserver.registry.kind import Kind, Served

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
    # Last: `deployments`, `pods` and `nodes` without a group must select the current API.
    "extensions": 100,
    "metrics.k8s.io": 100,
}
_OTHERS = 1000
_VERSION_PRIORITIES = {
    ("", "v1"): 1, ("autoscaling", "v2"): 30, ("flowcontrol.apiserver.k8s.io", "v1"): 21,
    ("resource.k8s.io", "v1"): 21, ("storagemigration.k8s.io", "v1"): 15,
}  # fmt: skip
_STAGE_PRIORITIES = {"": 15, "beta": 9, "alpha": 1}
_VERSION = re.compile(r"v([1-9]\d*)(?:(beta|alpha)([1-9]\d*))?")
_STAGES = ("", "beta", "alpha")


class ForeignVersion(msgspec.Struct, frozen=True):
    """A group-version of an extension server: its resources in the aggregated form.

    `is_current`: whether the server has answered lately.
    """

    group: str
    version: str
    resources: tuple[dict[str, Any], ...]
    is_current: bool
    group_priority: int
    version_priority: int


class Version(msgspec.Struct, frozen=True):
    """A group-version and what it serves: kinds, by plural name, or resources of an extension."""

    group: str
    version: str
    resources: tuple[tuple[Kind, Served], ...] = ()
    foreign: ForeignVersion | None = None

    @property
    def group_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


class Group(msgspec.Struct, frozen=True):
    """A group; its first version is the preferred one."""

    name: str
    versions: tuple[Version, ...]


def group_priority(group: str) -> int:
    """Return the `groupPriorityMinimum` of one of the API's own groups."""
    return _PRIORITIES.get(group, _OTHERS)


def version_priority(group: str, version: str) -> int:
    """Return the `versionPriority` of a version of one of the API's own groups."""
    match = _VERSION.fullmatch(version)
    stage = "" if match is None else match.group(2) or ""
    return _VERSION_PRIORITIES.get((group, version), _STAGE_PRIORITIES[stage])


def grouped(
    resources: Iterable[tuple[Kind, Served]], foreign: Iterable[ForeignVersion] = ()
) -> tuple[Group, ...]:
    """Return the groups in order of priority; the core group is the first."""
    by_group: dict[str, dict[str, list[tuple[Kind, Served]]]] = {}
    priorities: dict[str, int] = {}
    extensions: dict[str, list[ForeignVersion]] = {}
    for version in foreign:
        extensions.setdefault(version.group, []).append(version)
        priority = max(version.group_priority, priorities.get(version.group, 0))
        priorities[version.group] = priority
    for kind, served in resources:
        versions = by_group.setdefault(served.group, {})
        versions.setdefault(served.version, []).append((kind, served))
    groups = [
        Group(name, tuple(_versions(name, by_group.get(name, {}), extensions.get(name, ()))))
        for name in [*by_group, *(name for name in extensions if name not in by_group)]
    ]

    def order(group: Group) -> tuple[int, str]:
        own = _PRIORITIES.get(group.name, _OTHERS) if group.name in by_group else 0
        return -max(own, priorities.get(group.name, 0)), group.name

    return tuple(sorted(groups, key=order))


def _versions(
    group: str,
    own: Mapping[str, list[tuple[Kind, Served]]],
    foreign: Iterable[ForeignVersion],
) -> list[Version]:
    """Return the versions of a group in order of priority, the preferred one first."""
    ranked = [
        (
            0,
            Version(group, version, tuple(sorted(found, key=lambda resource: resource[0].plural))),
        )
        for version, found in own.items()
    ]
    # Local versions are in the order of their names alone, unless an extension joins them.
    ranked += [(one.version_priority, Version(group, one.version, foreign=one)) for one in foreign]
    is_mixed = any(version.foreign for _, version in ranked)
    custom = 100 if is_mixed else 0
    return [
        version
        for _, version in sorted(
            ranked, key=lambda entry: (-(entry[0] or custom), _age(entry[1].version))
        )
    ]


def _age(version: str) -> tuple[int, int, int, str]:
    """Return the sort key of a version: stable, beta, alpha; in each the highest number first.

    Other names follow, in alphabetical order. Source: API docs "Version priority" of
    CustomResourceDefinitions.
    """
    match = _VERSION.fullmatch(version)
    if match is None:
        return len(_STAGES), 0, 0, version
    major, stage, minor = match.groups()
    return _STAGES.index(stage or ""), -int(major), -int(minor or 0), ""


def is_former_home(kind: Kind, served: Served) -> bool:
    """Return whether a kind is served here only for old manifests: its home is another group.

    Events have two homes, the newer of which is not their first; only a former one warns.
    """
    return served.group != kind.group and bool(served.warning)
