"""Discovery of every kind, against a recorded table."""

from __future__ import annotations

from moorage.apiserver.endpoints.discovery import documents
from moorage.apiserver.endpoints.discovery.documents import grouped
from moorage.apiserver.registry.kinds import ALL_KINDS
from moorage.apiserver.registry.resource_map import ResourceMap
from tests.recording import assert_recorded


def test_what_is_discovered() -> None:
    groups = grouped(ResourceMap(ALL_KINDS).resources())
    table = {"/api": documents.core_versions("host:1"), "/apis": documents.group_list(groups)}
    for group in groups:
        root = f"/apis/{group.name}" if group.name else "/api"
        table[f"{root} group"] = documents.group(group)
        for version in group.versions:
            listed = documents.resource_list(version)
            resources = listed.pop("resources")
            at = f"{root}/{version.version}"
            table[at] = listed
            table |= {f"{at} {entry['name']}": entry for entry in resources}
    for group in documents.aggregated(groups, "v2")["items"]:
        for version in group["versions"]:
            at = f"aggregated {group['metadata']} {version['version']}"
            for entry in version.pop("resources"):
                parts = entry.pop("subresources", [])
                table[f"{at} {entry['resource']}"] = entry
                table |= {f"{at} {entry['resource']}/{part['subresource']}": part for part in parts}
            table[at] = version
    assert_recorded("apiserver/discovery", table)
