"""Installation of our own custom resources on an API server."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.api.errors import InvalidError, StatusError
from moorage.api.meta import Raw
from moorage.api.runtime_group import API_VERSION
from moorage.runtimes.custom_resources import definitions, install_definitions
from moorage.runtimes.custom_resources.installation import CUSTOM_RESOURCE_DEFINITIONS
from moorage.wire.client.resources import (
    CLUSTER_RUNTIME_POLICIES,
    RUNTIME_INSTALLATIONS,
    RUNTIME_PROFILES,
)
from moorage.wire.client.rest import Client
from tests.controllers.cluster import running_cluster

_POLICY = {"apiVersion": API_VERSION, "kind": "ClusterRuntimePolicy"}
_PROFILE = {"apiVersion": API_VERSION, "kind": "RuntimeProfile"}
_INSTALLATION = {"apiVersion": API_VERSION, "kind": "RuntimeInstallation"}


async def test_definitions_are_served_once_installed_and_refuse_what_has_no_meaning(
    tmp_path: Path,
) -> None:
    async with running_cluster(tmp_path) as cluster:
        client = cluster.client
        await install_definitions(client)
        stored = await client.list(CUSTOM_RESOURCE_DEFINITIONS)
        await install_definitions(client)
        again = await client.list(CUSTOM_RESOURCE_DEFINITIONS)
        assert again.items == stored.items, "nothing is written where nothing has changed"
        name = stored.items[0].metadata.name
        await client.patch(
            CUSTOM_RESOURCE_DEFINITIONS,
            name,
            {"metadata": {"annotations": {"runtime.moorage.dev/definition": "of another version"}}},
        )
        await install_definitions(client)
        corrected = await client.get(CUSTOM_RESOURCE_DEFINITIONS, name)
        assert corrected.metadata.annotations == stored.items[0].metadata.annotations
        assert {item.metadata.name for item in stored.items} == {
            definition["metadata"]["name"] for definition in definitions()
        }
        await _check_profiles(client)
        await _check_installations(client)
        for name, (spec, complaint) in _BAD_POLICIES.items():
            body = _POLICY | {"metadata": {"name": name}, "spec": spec}
            with pytest.raises(InvalidError, match=complaint):
                await client.create(CLUSTER_RUNTIME_POLICIES, body)


_BAD_POLICIES: dict[str, tuple[Raw, str]] = {
    "level": ({"minimumIsolation": "none"}, "Unsupported value"),
    "enforced": ({"enforceDefault": True}, "enforceDefault needs defaultClassName"),
    "forbidden": (
        {"defaultClassName": "a", "allowedClasses": ["b"]},
        "defaultClassName must be one of allowedClasses",
    ),
    "check": ({"checks": {"a": "Refuse"}}, "Unsupported value"),
}


async def _check_profiles(client: Client) -> None:
    spec = {"nodeName": "n1.example", "handler": "gvisor"}
    body = _PROFILE | {"metadata": {"name": "n1.example.gvisor"}, "spec": spec}
    profile = await client.create(RUNTIME_PROFILES, body)
    assert (profile.spec.node_name, profile.spec.handler) == ("n1.example", "gvisor")
    with pytest.raises(StatusError, match="a profile is of one handler of one node"):
        await client.patch(RUNTIME_PROFILES, profile.metadata.name, {"spec": {"handler": "kata"}})
    selected = await client.list(RUNTIME_PROFILES, field_selector="spec.nodeName=n1.example")
    assert [item.metadata.name for item in selected.items] == ["n1.example.gvisor"]


_BAD_INSTALLATIONS: dict[str, tuple[Raw, str]] = {
    "handler": ({"handler": "No"}, r"spec\.handler"),
    "sources": ({"sources": []}, r"spec\.sources"),
    "none": (
        {"sources": [{"architecture": "amd64"}]},
        "one of path, url and package is required",
    ),
    "both": (
        {"sources": [{"architecture": "amd64", "path": "/a", "package": "bb"}]},
        "one of path, url and package is required",
    ),
    "digest": (
        {"sources": [{"architecture": "amd64", "path": "/a"}]},
        "sha256 is required for a file and an address",
    ),
    "program": (
        {"sources": [{"architecture": "amd64", "package": "runc", "program": "runc"}]},
        "program is the absolute path of a package's runtime",
    ),
    "zero": ({"maxUnavailable": 0}, r"spec\.maxUnavailable"),
    "percent": ({"maxUnavailable": "0%"}, r"spec\.maxUnavailable"),
    "scheme": (
        {"sources": [{"architecture": "a", "url": "file:///x", "sha256": "a" * 64}]},
        r"spec\.sources\[0\]\.url",
    ),
    "policy": ({"removalPolicy": "Keep"}, "Unsupported value"),
}


async def _check_installations(client: Client) -> None:
    spec: Raw = {
        "handler": "crun-2",
        "sources": [{"architecture": "amd64", "path": "/x", "sha256": "a" * 64}],
    }
    for name, (changes, complaint) in _BAD_INSTALLATIONS.items():
        body = _INSTALLATION | {"metadata": {"name": name}, "spec": spec | changes}
        with pytest.raises(InvalidError, match=complaint):
            await client.create(RUNTIME_INSTALLATIONS, body)
    made = await client.create(
        RUNTIME_INSTALLATIONS, _INSTALLATION | {"metadata": {"name": "good"}, "spec": spec}
    )
    assert (made.spec.max_unavailable, made.spec.removal_policy) == (1, "Remove")
    with pytest.raises(InvalidError, match="handler cannot be changed"):
        await client.patch(RUNTIME_INSTALLATIONS, "good", {"spec": {"handler": "other"}})
