"""Discovery documents: unaggregated (one per group-version) and aggregated.

Source: meta.k8s.io/v1 `APIVersions`, `APIGroupList`, `APIResourceList`; apidiscovery.k8s.io/v2
`APIGroupDiscoveryList` (KEP-3352).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any

from moorage.apiserver.endpoints.discovery.groups import Group, Version, is_former_home
from moorage.apiserver.registry.kind import Kind, Served, Subresource

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
