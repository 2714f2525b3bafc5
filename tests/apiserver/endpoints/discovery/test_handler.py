"""Discovery, plain and aggregated, as clients ask for it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from aiohttp.test_utils import make_mocked_request

from moorage.api.errors import NotAcceptableError
from moorage.apiserver.endpoints.discovery import DiscoveryHandler
from moorage.apiserver.endpoints.replies import Reply
from moorage.apiserver.registry.kinds import ALL_KINDS
from moorage.apiserver.registry.resource_map import ResourceMap

PAGES = DiscoveryHandler(ResourceMap(ALL_KINDS), "10.0.0.1:6443")
V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
V2BETA1 = V2.replace("v=v2", "v=v2beta1")


def reply(path: str, accept: str = "", **headers: str) -> Reply:
    sent_headers = {"Accept": accept} if accept else {}
    sent_headers |= {name.replace("_", "-"): value for name, value in headers.items()}
    response = PAGES(make_mocked_request("GET", path, headers=sent_headers))
    assert response is not None
    return response


def document(path: str, accept: str = "") -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(reply(path, accept).body)
    return decoded


def test_other_paths_are_not_its_own() -> None:
    for path in ("/", "/apis/nope", "/api/v2", "/apis/node.k8s.io/v9", "/version", "/openapi/v3"):
        assert PAGES(make_mocked_request("GET", path)) is None


def test_the_core_versions() -> None:
    assert (
        document("/api")
        == document("/api/")
        == {
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [
                {"clientCIDR": "0.0.0.0/0", "serverAddress": "10.0.0.1:6443"}
            ],
        }
    )


def test_groups_come_by_importance() -> None:
    body = document("/apis")
    assert body["kind"] == "APIGroupList"
    assert [group["name"] for group in body["groups"]] == [
        "apiregistration.k8s.io", "apps", "events.k8s.io", "authentication.k8s.io",
        "authorization.k8s.io", "autoscaling", "batch", "certificates.k8s.io",
        "networking.k8s.io", "policy", "rbac.authorization.k8s.io", "storage.k8s.io",
        "admissionregistration.k8s.io", "apiextensions.k8s.io", "scheduling.k8s.io",
        "coordination.k8s.io", "node.k8s.io", "discovery.k8s.io", "resource.k8s.io",
        "flowcontrol.apiserver.k8s.io", "storagemigration.k8s.io", "extensions", "metrics.k8s.io",
    ]  # fmt: skip


def test_a_group_prefers_its_stable_version() -> None:
    body = document("/apis/node.k8s.io")
    assert body["kind"] == "APIGroup"
    assert [version["version"] for version in body["versions"]] == ["v1", "v1beta1", "v1alpha1"]
    assert body["preferredVersion"] == {"groupVersion": "node.k8s.io/v1", "version": "v1"}


def test_a_version_lists_its_resources() -> None:
    assert document("/apis/node.k8s.io/v1") == {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": "node.k8s.io/v1",
        "resources": [
            {
                "name": "runtimeclasses",
                "singularName": "runtimeclass",
                "namespaced": False,
                "kind": "RuntimeClass",
                "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update",
                          "watch"],
                "storageVersionHash": "WQTu1GL3T2Q=",
            }
        ],
    }  # fmt: skip


def test_the_core_version_has_subresources_with_their_own_kinds() -> None:
    body = document("/api/v1")
    assert "apiVersion" not in body
    by_name = {resource["name"]: resource for resource in body["resources"]}
    assert list(by_name) == sorted(by_name, key=lambda name: name.split("/"))
    assert by_name["pods"]["shortNames"] == ["po"]
    assert by_name["pods"]["categories"] == ["all"]
    assert by_name["pods/status"]["singularName"] == ""
    assert "group" not in by_name["pods/exec"]
    assert by_name["pods/eviction"] | {"verbs": 0} == {
        "name": "pods/eviction", "singularName": "", "namespaced": True, "kind": "Eviction",
        "group": "policy", "version": "v1", "verbs": 0,
    }  # fmt: skip
    assert by_name["serviceaccounts/token"]["group"] == "authentication.k8s.io"


def test_a_former_home_offers_no_short_names() -> None:
    (deployments, *_) = document("/apis/extensions/v1beta1")["resources"]
    assert "shortNames" not in deployments
    assert "categories" not in deployments


@pytest.mark.parametrize("path", ["/api", "/apis"])
@pytest.mark.parametrize(
    ("accept", "version"),
    [
        (V2, "v2"),
        (f"{V2},{V2BETA1},application/json", "v2"),
        (f"{V2BETA1},application/json", "v2beta1"),
        (V2.replace(";v=v2;as=APIGroupDiscoveryList", ";as=APIGroupDiscoveryList;v=v2"), "v2"),
        (V2.replace(";", "; ") + ";profile=nopeer", "v2"),
        (f"{V2};q=0.9", "v2"),
        (f"application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList,{V2}", "v2"),
    ],
)
def test_aggregated_discovery_is_negotiated_by_accept(path: str, accept: str, version: str) -> None:
    response = reply(path, accept)
    assert response.content_type == V2.replace("v=v2", f"v={version}")
    decoded = msgspec.json.decode(response.body)
    assert decoded["kind"] == "APIGroupDiscoveryList"
    assert decoded["apiVersion"] == f"apidiscovery.k8s.io/{version}"
    assert decoded["metadata"] == {}
    assert response.headers["Vary"] == "Accept"
    assert response.headers["Cache-Control"] == "public"


@pytest.mark.parametrize(
    "accept",
    [
        "", "*/*", "application/json", f"application/json,{V2}",
        "application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList,application/json",
    ],
)  # fmt: skip
def test_the_plain_form_for_everybody_else(accept: str) -> None:
    assert document("/apis", accept)["kind"] == "APIGroupList"
    assert reply("/apis", accept).content_type == "application/json"


@pytest.mark.parametrize(
    "accept",
    [
        "application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList",
        "text/html",
        f"text/html,{V2.replace('v=v2', 'v=v3')}",
    ],
)
def test_unsupported_media_type_is_not_acceptable(accept: str) -> None:
    with pytest.raises(NotAcceptableError) as refusal:
        reply("/apis", accept)
    assert refusal.value.status_code == 406
    assert "only the following media types are accepted" in refusal.value.message


def test_matching_etag_returns_not_modified() -> None:
    first = reply("/apis", V2)
    etag = first.headers["Etag"]
    assert len(etag) == 130
    assert etag == etag.upper()
    again = reply("/apis", V2, If_None_Match=etag)
    assert (again.status, again.body) == (304, b"")
    assert again.headers["Etag"] == etag
    assert reply("/apis", V2, If_None_Match='"other"').status == 200
    assert reply("/api", V2).headers["Etag"] != etag
    assert reply("/apis", V2BETA1).headers["Etag"] != etag


def test_aggregated_discovery_lists_what_the_plain_documents_list() -> None:
    groups = {obj["metadata"].get("name", ""): obj for path in ("/api", "/apis")
              for obj in document(path, V2)["items"]}  # fmt: skip
    assert list(groups)[1:] == [group_entry["name"] for group_entry in document("/apis")["groups"]]
    for name, group in groups.items():
        for version in group["versions"]:
            root = f"/apis/{name}" if name else "/api"
            plain = document(f"{root}/{version['version']}")["resources"]
            aggregated: set[tuple[str, tuple[str, ...]]] = set()
            for resource in version["resources"]:
                aggregated.add((resource["resource"], tuple(resource["verbs"])))
                aggregated |= {
                    (f"{resource['resource']}/{part['subresource']}", tuple(part["verbs"]))
                    for part in resource.get("subresources", ())
                }
            assert aggregated == {(entry["name"], tuple(entry["verbs"])) for entry in plain}
            assert version["freshness"] == "Current"


def test_a_resource_in_the_aggregated_form() -> None:
    (node,) = (group for group in document("/apis", V2)["items"]
               if group["metadata"]["name"] == "node.k8s.io")  # fmt: skip
    assert node["versions"][0]["resources"] == [
        {
            "resource": "runtimeclasses",
            "responseKind": {"group": "", "version": "", "kind": "RuntimeClass"},
            "scope": "Cluster",
            "singularResource": "runtimeclass",
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update",
                      "watch"],
        }
    ]  # fmt: skip
