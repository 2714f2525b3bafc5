"""API groups and versions with their kinds, in discovery order.

The order decides which of two groups a resource name without a group selects. Source:
kube-aggregator's `groupPriorityMinimum` table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moorage.registry.kind import Kind, Served

_PRIORITIES = {
    "": 18000,
    "apps": 17800,
    "events.k8s.io": 17750,
    "authentication.k8s.io": 17700,
    "authorization.k8s.io": 17600,
    "rbac.authorization.k8s.io": 17000,
    "scheduling.k8s.io": 16600,
    "coordination.k8s.io": 16500,
    "node.k8s.io": 16300,
    "discovery.k8s.io": 16200,
    # Last: `deployments` without a group must select the current API.
    "extensions": 100,
}
_OTHERS = 1000


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


def grouped(kinds: Sequence[Kind]) -> tuple[Group, ...]:
    """Return the groups in order of priority; the core group is the first."""
    by_group: dict[str, dict[str, list[tuple[Kind, Served]]]] = {}
    for kind in kinds:
        for served in kind.served:
            by_group.setdefault(served.group, {}).setdefault(served.version, []).append(
                (kind, served)
            )
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


def _age(version: str) -> tuple[int, str]:
    """Return the sort key of a version: stable before beta before alpha."""
    maturity = 1 if "beta" in version else 2 if "alpha" in version else 0
    return maturity, version


def is_former_home(kind: Kind, served: Served) -> bool:
    """Return whether a kind is served here only for old manifests: its home is another group."""
    return served.group != kind.group
