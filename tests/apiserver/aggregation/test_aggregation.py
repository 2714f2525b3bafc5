"""Extension servers behind APIServices, through the API."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from moorage.apiserver.server.request_deadlines import CallLimits
from tests.apiserver.aggregation.extension_server import (
    GROUP,
    PLACE,
    RESOURCES,
    ExtensionServer,
    extension_server,
)
from tests.apiserver.running_server import Answer, Running, serving

Json = dict[str, Any]
SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
NAME = f"v1alpha1.{GROUP}"
FLUNDERS = f"{PLACE}/namespaces/default/flunders"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@pytest.fixture
def call_limits() -> CallLimits:
    return CallLimits()


@pytest.fixture
async def server(tmp_path: Path, call_limits: CallLimits) -> AsyncIterator[Running]:
    places: dict[tuple[str, str, int], str] = {}
    # Proxies reach neither loopback nor addresses without a pod, and the tests have nothing else.
    async with serving(
        tmp_path,
        runs=True,
        find_service=lambda _, *service: places[service],
        call_limits=call_limits,
    ) as running:
        running.places = places  # type: ignore[attr-defined]
        yield running


@pytest.fixture
async def extension(server: Running, tmp_path: Path) -> AsyncIterator[ExtensionServer]:
    authority = tmp_path / "front-proxy" / "ca.crt"
    async with extension_server(server.authority, authority) as served:
        server.places["default", "sample-api", 7443] = served.authority  # type: ignore[attr-defined]
        yield served


def api_service(server: Running, **spec: Any) -> Json:
    bundle = base64.b64encode(server.authority.pair.certificate.read_bytes()).decode()
    return {
        "metadata": {"name": NAME},
        "spec": {
            "service": {"namespace": "default", "name": "sample-api", "port": 7443},
            "group": GROUP, "version": "v1alpha1", "caBundle": bundle,
            "groupPriorityMinimum": 2000, "versionPriority": 200, **spec,
        },
    }  # fmt: skip


async def until(server: Running, path: str, holds: Callable[[Answer], bool]) -> Answer:
    async with asyncio.timeout(10):
        while True:
            answer = await server.ask("GET", path)
            if holds(answer):
                return answer
            await asyncio.sleep(0.01)


def condition(answer: Answer) -> tuple[str, str, str]:
    found = answer.json.get("status", {}).get("conditions", ())
    return next(
        ((one["status"], one["reason"], one["message"]) for one in found
         if one["type"] == "Available"),
        ("", "", ""),
    )  # fmt: skip


async def until_reason(server: Running, reason: str) -> tuple[str, str, str]:
    return condition(
        await until(server, f"{SERVICES}/{NAME}", lambda answer: condition(answer)[1] == reason)
    )


async def add_service(server: Running, port: int = 7443) -> None:
    spec = {"ports": [{"port": port, "targetPort": 443}], "selector": {"a": "b"}}
    body = {"metadata": {"name": "sample-api"}, "spec": spec}
    assert (await server.ask("POST", "/api/v1/namespaces/default/services", body)).status == 201


async def add_endpoints(server: Running) -> None:
    labels = {"kubernetes.io/service-name": "sample-api"}
    body = {
        "metadata": {"name": "sample-api-1", "labels": labels},
        "addressType": "IPv4", "ports": [{"port": 443, "name": ""}],
        "endpoints": [{"addresses": ["10.1.1.1"]}],
    }  # fmt: skip
    path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    assert (await server.ask("POST", path, body)).status == 201


@pytest.fixture
async def available(server: Running, extension: ExtensionServer) -> ExtensionServer:
    await add_service(server)
    await add_endpoints(server)
    created = await server.ask("POST", SERVICES, api_service(server))
    assert created.status == 201, created.text
    assert "Warning" not in created.headers
    await until_reason(server, "Passed")
    return extension


async def test_the_condition_says_what_is_missing(
    server: Running, extension: ExtensionServer
) -> None:
    await server.ask("POST", SERVICES, api_service(server))
    place = 'service/sample-api in "default"'
    assert await until_reason(server, "ServiceNotFound") == (
        "False", "ServiceNotFound", f"{place} is not present",
    )  # fmt: skip
    unavailable = await server.ask("GET", FLUNDERS)
    assert (unavailable.status, unavailable.text) == (503, "service unavailable\n")
    await add_service(server, 99)
    assert (await until_reason(server, "ServicePortError"))[2] == (
        f"{place} is not listening on port 7443"
    )
    await server.ask("DELETE", "/api/v1/namespaces/default/services/sample-api")
    await add_service(server)
    assert (await until_reason(server, "EndpointsNotFound"))[2] == (
        f"cannot find endpointslices for {place}"
    )
    del extension.answers[PLACE]
    await add_endpoints(server)
    url = f"https://{extension.authority}{PLACE}"
    assert (await until_reason(server, "FailedDiscoveryCheck"))[2] == (
        f"failing or missing response from {url}: bad status from {url}: 404"
    )
    extension.answers[PLACE] = lambda _: web.json_response(RESOURCES)
    assert (await until_reason(server, "Passed"))[2] == "all checks passed"
    ours = extension.asked[-1].headers
    assert (ours["X-Remote-User"], ours["X-Remote-Group"]) == (
        "system:kube-aggregator", "system:masters",
    )  # fmt: skip


async def test_a_request_is_passed_on_with_its_user(
    server: Running, available: ExtensionServer
) -> None:
    async def echo(http: web.BaseRequest) -> web.Response:
        body = await http.read()
        return web.Response(status=201, body=body, headers={"X-Own": "1", "Connection": "close"})

    available.answers[FLUNDERS] = echo
    answer = await server.ask(
        "POST", f"{FLUNDERS}?dryRun=All&x=%26", {"kind": "Flunder"},
        X_Remote_User="root", X_Remote_Extra_a="b",
    )  # fmt: skip
    assert (answer.status, answer.json) == (201, {"kind": "Flunder"})
    assert (answer.headers["X-Own"], "Audit-Id" in answer.headers) == ("1", True)
    asked = available.last(FLUNDERS)
    assert (asked.method, asked.rel_url.raw_query_string) == ("POST", "dryRun=All&x=%26")
    assert asked.headers["X-Remote-User"] == "admin"
    assert asked.headers.getall("X-Remote-Group") == ["system:masters", "system:authenticated"]
    assert "X-Remote-Extra-a" not in asked.headers
    assert "Authorization" not in asked.headers
    assert asked.headers["Content-Type"] == "application/json"


async def test_rights_are_checked_before(server: Running, available: ExtensionServer) -> None:
    available.asked.clear()
    refused = await server.ask("GET", FLUNDERS, token="alice-token")
    assert refused.status == 403
    assert not [http for http in available.asked if http.path == FLUNDERS]


async def test_a_watch_is_passed_on_as_it_comes(
    server: Running, available: ExtensionServer
) -> None:
    released = asyncio.Event()

    async def watch(http: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(http)
        await response.write(b'{"type":"ADDED"}\n')
        await released.wait()
        await response.write(b'{"type":"DELETED"}\n')
        await response.write_eof()
        return response

    available.answers[FLUNDERS] = watch
    async with server.opened(f"{FLUNDERS}?watch=1") as stream:
        assert json.loads(await stream.content.readline()) == {"type": "ADDED"}
        released.set()
        assert json.loads(await stream.content.readline()) == {"type": "DELETED"}
        assert not await stream.content.readline()


async def test_a_redirect_is_refused(server: Running, available: ExtensionServer) -> None:
    headers = {"Location": "https://elsewhere.example/"}
    available.answers[FLUNDERS] = lambda _: web.Response(status=302, headers=headers)
    answer = await server.ask("GET", FLUNDERS)
    assert (answer.status, answer.text) == (
        502, "the backend attempted to redirect this request, which is not permitted",
    )  # fmt: skip
    assert "Location" not in answer.headers


@pytest.mark.parametrize("call_limits", [CallLimits(extension_s=0.2)])
async def test_a_server_that_does_not_answer_in_time(
    server: Running, available: ExtensionServer
) -> None:
    async def hang(_: web.BaseRequest) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    available.answers[FLUNDERS] = hang
    assert (await server.ask("GET", FLUNDERS)).status == 504


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"caBundle": ""}, "certificate verify failed"),
        ({"caBundle": base64.b64encode(b"x").decode()}, "unable to load root certificates"),
    ],
)
async def test_a_server_that_is_not_vouched_for_is_not_asked(
    server: Running, extension: ExtensionServer, spec: Json, says: str
) -> None:
    del extension
    await add_service(server)
    await add_endpoints(server)
    await server.ask("POST", SERVICES, api_service(server, **spec))
    assert says in (await until_reason(server, "FailedDiscoveryCheck"))[2]


async def test_verification_can_be_turned_off(server: Running, extension: ExtensionServer) -> None:
    del extension
    await add_service(server)
    await add_endpoints(server)
    body = api_service(server, insecureSkipTLSVerify=True)
    del body["spec"]["caBundle"]
    await server.ask("POST", SERVICES, body)
    await until_reason(server, "Passed")


def groups(answer: Answer) -> list[str]:
    return [group["name"] for group in answer.json["groups"]]


async def test_its_resources_are_discovered(server: Running, available: ExtensionServer) -> None:
    del available
    names = groups(await server.ask("GET", "/apis"))
    # Before the groups of lower priority, after the API's own.
    assert names.index("storagemigration.k8s.io") < names.index(GROUP) < names.index("extensions")
    assert (await server.ask("GET", f"/apis/{GROUP}")).json["preferredVersion"] == {
        "groupVersion": f"{GROUP}/v1alpha1", "version": "v1alpha1",
    }  # fmt: skip
    assert (await server.ask("GET", PLACE)).json == RESOURCES

    async def found(freshness: str) -> Json:
        async with asyncio.timeout(20):
            while True:
                answer = await server.ask("GET", "/apis", Accept=AGGREGATED)
                items = {item["metadata"]["name"]: item for item in answer.json["items"]}
                (version,) = items[GROUP]["versions"]
                if version["freshness"] == freshness:
                    return dict(version)
                await asyncio.sleep(0.01)

    current = await found("Current")
    assert current == {
        "version": "v1alpha1", "freshness": "Current",
        "resources": [{
            "resource": "flunders", "scope": "Namespaced", "singularResource": "flunder",
            "responseKind": {"group": "", "version": "", "kind": "Flunder"},
            "verbs": ["create", "get", "list", "watch"], "shortNames": ["fl"],
            "subresources": [{
                "subresource": "status", "verbs": ["get"],
                "responseKind": {"group": "", "version": "", "kind": "Flunder"},
            }],
        }],
    }  # fmt: skip
    await server.ask("DELETE", "/api/v1/namespaces/default/services/sample-api")
    await until_reason(server, "ServiceNotFound")
    assert (await found("Stale"))["resources"] == current["resources"]
    await server.ask("DELETE", f"{SERVICES}/{NAME}")
    assert GROUP not in groups(await server.ask("GET", "/apis"))
    assert (await server.ask("GET", FLUNDERS)).status == 404


INDEX = "/openapi/v3"
DOCUMENT = f"{INDEX}{PLACE}"


@pytest.fixture
def index(request: pytest.FixtureRequest, extension: ExtensionServer) -> bytes:
    """What the extension answers for its index, before it is asked."""
    body: bytes = request.param
    extension.answers[INDEX] = lambda _: web.Response(body=body)
    return body


OWN = {"serverRelativeURL": f"{DOCUMENT}?hash=A%2FB"}
PATHS = {PLACE[1:]: OWN, "apis/apps/v1": {"serverRelativeURL": "/openapi/v3/evil?hash=X"}}


@pytest.mark.parametrize("index", [json.dumps({"paths": PATHS}).encode()], indirect=True)
async def test_its_openapi_is_in_the_index_and_passed_on(
    server: Running, index: bytes, available: ExtensionServer
) -> None:
    del index
    text = '{"openapi": "3.0.0",  "paths": {}}'
    available.answers[DOCUMENT] = lambda _: web.Response(text=text)
    listed = await until(server, INDEX, lambda answer: PLACE[1:] in answer.json["paths"])
    assert listed.json["paths"][PLACE[1:]] == OWN
    assert "evil" not in listed.text
    answer = await server.ask("GET", OWN["serverRelativeURL"])
    assert (answer.status, answer.text) == (200, text)
    available.answers[DOCUMENT] = lambda _: web.Response(text="<html>")
    answer = await server.ask("GET", DOCUMENT)
    assert answer.status == 503
    assert "error trying to reach service" in answer.text
    assert (await server.ask("GET", f"{INDEX}/apis/other.example.com/v1")).status == 404


async def test_its_openapi_v2_is_joined_to_the_servers_own(
    server: Running, available: ExtensionServer
) -> None:
    path, own = f"{PLACE}/flunders", "/apis/apps/v1/deployments"
    text = json.dumps(
        {"paths": {path: {"get": {"operationId": "listFlunder", "responses": {}}}, own: {}}}
    )
    available.answers["/openapi/v2"] = lambda _: web.Response(text=text)
    answer = await server.ask("GET", "/openapi/v2")
    assert answer.json["paths"][path]["get"]["operationId"] == "listFlunder"
    assert answer.json["paths"][own] != {}
    known = {"If-None-Match": answer.headers["Etag"]}
    assert (await server.ask("GET", "/openapi/v2", **known)).status == 304
    accept = {"Accept": "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"}
    assert b"listFlunder" in (await server.ask("GET", "/openapi/v2", **accept)).body
    assert [http.path for http in available.asked].count("/openapi/v2") == 1


@pytest.mark.parametrize("text", ["", '{"paths": 1}'])
async def test_an_openapi_v2_that_is_none_leaves_the_servers_own(
    server: Running, available: ExtensionServer, text: str
) -> None:
    available.answers["/openapi/v2"] = lambda _: web.Response(text=text)
    answer = await server.ask("GET", "/openapi/v2")
    assert "/apis/apps/v1/namespaces/{namespace}/deployments" in answer.json["paths"]


@pytest.mark.parametrize(
    "index",
    [
        b"",
        b"[]",
        b'{"paths": {}}',
        b'{"paths": {"apis/wardle.example.com/v1alpha1": 1}}',
        b'{"paths": {"apis/wardle.example.com/v1alpha1": {"serverRelativeURL": "//["}}}',
    ],
    indirect=True,
)
async def test_an_index_that_is_none_leaves_the_servers_own(
    server: Running, index: bytes, available: ExtensionServer
) -> None:
    del index
    answer = await until(
        server, INDEX, lambda _: any(http.path == INDEX for http in available.asked)
    )
    assert "apis/apps/v1" in answer.json["paths"]
    assert PLACE[1:] not in answer.json["paths"]


async def test_a_server_that_changes_while_it_is_asked_is_asked_again(
    server: Running, available: ExtensionServer
) -> None:
    asked, release = asyncio.Event(), asyncio.Event()

    async def slow(_: web.BaseRequest) -> web.StreamResponse:
        asked.set()
        await release.wait()
        return web.Response(body=b'{"items":[]}', headers={"Content-Type": AGGREGATED})

    available.answers["/apis"] = slow
    await _prioritise(server, 100)
    await asked.wait()
    available.answers["/apis"] = lambda _: web.Response(
        body=b"[", headers={"Content-Type": AGGREGATED}
    )
    await _prioritise(server, 101)
    release.set()
    await _until_stale(server)


async def _prioritise(server: Running, version_priority: int) -> None:
    """Change the APIService, so that its server is asked again."""
    patch = {"spec": {"versionPriority": version_priority}}
    merge = "application/merge-patch+json"
    assert (
        await server.ask("PATCH", f"{SERVICES}/{NAME}", patch, Content_Type=merge)
    ).status == 200


async def _until_stale(server: Running) -> None:
    async with asyncio.timeout(30):
        while True:
            answer = await server.ask("GET", "/apis", Accept=AGGREGATED)
            items = {item["metadata"]["name"]: item for item in answer.json["items"]}
            if items[GROUP]["versions"][0]["freshness"] == "Stale":
                break
            # Each answer takes processor time from the reading of the document.
            await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    ("piece", "pieces"),
    [(b" " * 65536, 200), (b'{"metadata":{}},' * 2000, 100)],
    ids=["bytes", "values"],
)
async def test_a_huge_discovery_document_is_not_taken(
    server: Running, available: ExtensionServer, piece: bytes, pieces: int
) -> None:
    async def huge(http: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": AGGREGATED})
        response.enable_chunked_encoding()
        await response.prepare(http)
        await response.write(b'{"items":[')
        for _ in range(pieces):
            await response.write(piece)
        await response.write(b'{"metadata":{}}]}')
        return response

    available.answers["/apis"] = huge
    await _prioritise(server, 100)
    await _until_stale(server)


async def test_the_api_s_own_groups_are_never_passed_on(
    server: Running, extension: ExtensionServer
) -> None:
    service = {"namespace": "default", "name": "sample-api", "port": 7443}
    patch = {"spec": {"service": service}}
    merge = "application/merge-patch+json"
    patched = await server.ask("PATCH", f"{SERVICES}/v1.apps", patch, Content_Type=merge)
    assert patched.status == 200
    assert (await server.ask("GET", "/apis/apps/v1/deployments")).status == 200
    assert not [http for http in extension.asked if "deployments" in http.path]


async def test_own_groups_have_local_services(server: Running) -> None:
    listed = {item["metadata"]["name"]: item for item in
              (await server.ask("GET", SERVICES)).json["items"]}  # fmt: skip
    assert {"v1.", "v1.apps", "v1.node.k8s.io", "v2.autoscaling"} <= listed.keys()
    apps = listed["v1.apps"]
    assert apps["metadata"]["labels"] == {"kube-aggregator.kubernetes.io/automanaged": "onstart"}
    assert apps["spec"] == {
        "group": "apps", "version": "v1", "groupPriorityMinimum": 17800, "versionPriority": 15,
    }  # fmt: skip
    (state,) = apps["status"]["conditions"]
    assert (state["status"], state["reason"]) == ("True", "Local")


async def test_definitions_have_local_services_as_long_as_they_are_there(server: Running) -> None:
    from tests.apiserver.server.test_custom_resources import CRDS, definition

    path = f"{SERVICES}/v1.stable.example.com"
    await server.ask("POST", CRDS, definition())
    found = await until(server, path, lambda answer: answer.status == 200)
    assert found.json["spec"] == {
        "group": "stable.example.com", "version": "v1", "groupPriorityMinimum": 1000,
        "versionPriority": 100,
    }  # fmt: skip
    assert found.json["metadata"]["labels"] == {"kube-aggregator.kubernetes.io/automanaged": "true"}
    await server.ask("DELETE", path)
    await until(server, path, lambda answer: answer.status == 200)
    await server.ask("DELETE", f"{CRDS}/crontabs.stable.example.com")
    await until(server, path, lambda answer: answer.status == 404)


async def test_extension_servers_read_whom_to_trust(server: Running, tmp_path: Path) -> None:
    path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    data = (await server.ask("GET", path)).json["data"]
    assert data["client-ca-file"] == server.authority.pair.certificate.read_text()
    front_proxy = (tmp_path / "front-proxy" / "ca.crt").read_text()
    assert data["requestheader-client-ca-file"] == front_proxy != data["client-ca-file"]
    assert data["requestheader-allowed-names"] == '["front-proxy-client"]'
    role = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles"
    rules = (await server.ask("GET", f"{role}/extension-apiserver-authentication-reader")).json
    assert rules["rules"][0]["resourceNames"] == ["extension-apiserver-authentication"]
