"""Discovery documents: unaggregated (one per group-version) and aggregated.

Source: meta.k8s.io/v1 `APIVersions`, `APIGroupList`, `APIResourceList`; apidiscovery.k8s.io/v2
`APIGroupDiscoveryList` (KEP-3352).
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from moorage.apiserver.registry.kind import Kind, Served, Subresource

# API groups and versions with their kinds, in discovery order.
#
# The order decides which of two groups a resource name without a group selects. Source:
# kube-aggregator's `groupPriorityMinimum` table.

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


Document = dict[str, Any]
_HASH_BYTES = 8


def core_versions(address: str) -> Document:
    """Return the document of `/api`."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def group_list(groups: Sequence[Group]) -> Document:
    """Return the document of `/apis`."""
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group(member) for member in groups if member.name],
    }


def group(described: Group) -> Document:
    """Return the document of `/apis/GROUP`."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(described)}


def _group(described: Group) -> Document:
    versions = [
        {"groupVersion": version.group_version, "version": version.version}
        for version in described.versions
    ]
    return {"name": described.name, "versions": versions, "preferredVersion": versions[0]}


def resource_list(described: Version) -> Document:
    """Return the document of `/api/v1` or `/apis/GROUP/VERSION`."""
    document: Document = {"kind": "APIResourceList"}
    if described.group:
        document["apiVersion"] = "v1"
    document["groupVersion"] = described.group_version
    document["resources"] = [
        entry for kind, served in described.resources for entry in _entries(kind, served)
    ]
    return document


def _entries(kind: Kind, served: Served) -> list[Document]:
    own: Document = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.is_namespaced,
        "kind": kind.name,
        "verbs": sorted(kind.verbs),
        **_names(kind, served),
    }
    if kind.is_stored:
        own["storageVersionHash"] = _storage_hash(kind)
    return [own, *(_part(kind, name, part) for name, part in sorted(kind.subresources.items()))]


def _part(kind: Kind, name: str, part: Subresource) -> Document:
    entry: Document = {
        "name": f"{kind.plural}/{name}",
        "singularName": "",
        "namespaced": kind.is_namespaced,
        "kind": part.kind or kind.name,
        "verbs": sorted(part.verbs),
    }
    if part.version:
        entry |= {"group": part.group, "version": part.version}
    return entry


def _names(kind: Kind, served: Served) -> Document:
    """Return short names and categories: home group only, or `get all` would show objects twice."""
    if is_former_home(kind, served):
        return {}
    names = {"shortNames": list(kind.short_names), "categories": list(kind.categories)}
    return {key: value for key, value in names.items() if value}


def _storage_hash(kind: Kind) -> str:
    version = kind.stored_version or kind.storage.version
    text = f"{'/'.join(filter(None, (kind.group, version)))}/{kind.name}"
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:_HASH_BYTES]).decode()


def aggregated(groups: Sequence[Group], version: str) -> Document:
    """Return the aggregated document; `version` is that of apidiscovery.k8s.io."""
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": described.name} if described.name else {},
                "versions": [_discovered_version(version) for version in described.versions],
            }
            for described in groups
        ],
    }


def _discovered_version(described: Version) -> Document:
    if (foreign := described.foreign) is not None:
        return {
            "version": foreign.version,
            "resources": list(foreign.resources),
            "freshness": "Current" if foreign.is_current else "Stale",
        }
    return {
        "version": described.version,
        "resources": [_discovered(kind, served) for kind, served in described.resources],
        "freshness": "Current",
    }


def _discovered(kind: Kind, served: Served) -> Document:
    resource: Document = {
        "resource": kind.plural,
        "responseKind": _response_kind(kind.name, *_home(kind, served)),
        "scope": "Namespaced" if kind.is_namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": sorted(kind.verbs),
        **_names(kind, served),
    }
    if kind.subresources:
        resource["subresources"] = [
            {
                "subresource": name,
                "responseKind": _response_kind(
                    part.kind or kind.name,
                    *((part.group, part.version) if part.version else _home(kind, served)),
                ),
                "verbs": sorted(part.verbs),
            }
            for name, part in sorted(kind.subresources.items())
        ]
    return resource


def _home(kind: Kind, served: Served) -> tuple[str, str]:
    """Return group and version where they are written out: in entries of custom resources."""
    return (served.group, served.version) if kind.is_custom else ("", "")


def _response_kind(kind: str, group: str = "", version: str = "") -> Document:
    return {"group": group, "version": version, "kind": kind}
