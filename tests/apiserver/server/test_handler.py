"""API server over TLS: authentication, answers and their representations."""

from __future__ import annotations

import gzip
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from moorage.cluster.access.identities import Authority, Subject
from tests.apiserver.running_server import Running, serving

CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with serving(tmp_path) as running:
        yield running


async def _whoami(server: Running, authority: Authority, subject: Subject) -> tuple[int, str]:
    context = server.tls(authority.issue("client", subject))
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    url = f"{server.url}/apis/authentication.k8s.io/v1/selfsubjectreviews"
    async with (
        aiohttp.ClientSession() as http,
        http.post(url, json=review, ssl=context) as answer,
    ):
        body = await answer.json()
        user = body.get("status", {}).get("userInfo", {}) if answer.status == 201 else {}
        return answer.status, user.get("username", "")


async def test_a_certificate_of_our_authority_names_its_user(server: Running) -> None:
    user = await _whoami(server, server.authority, Subject("carol", "system:masters"))
    assert user == (201, "carol")


async def test_certificate_of_another_authority_is_rejected(
    server: Running, tmp_path: Path
) -> None:
    foreign = Authority(tmp_path / "foreign", datetime.now(UTC))
    with pytest.raises(aiohttp.ClientError):
        await _whoami(server, foreign, Subject("carol", "system:masters"))


async def test_expired_certificate_is_rejected(server: Running, tmp_path: Path) -> None:
    # The authority's key with a clock of long ago: its certificates have run out by now.
    long_ago = datetime.now(UTC) - timedelta(days=800)
    authority = Authority(tmp_path / "pki", long_ago)
    with pytest.raises(aiohttp.ClientError):
        await _whoami(server, authority, Subject("dave", "system:masters"))


async def test_requests_without_credentials_are_unauthorized(server: Running) -> None:
    for path in ("/api", "/version", "/readyz", CLASSES):
        for token in ("", "wrong"):
            answer = await server.ask("GET", path, token=token)
            assert answer.status == 401
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")
            assert answer.json == {
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "Unauthorized", "reason": "Unauthorized", "code": 401,
            }  # fmt: skip


async def test_undecodable_token_is_unauthorized(server: Running) -> None:
    answer = await server.ask("GET", "/api", token="", Authorization="Bearer \u00ff")
    assert answer.status == 401


async def test_anonymous_user_may_read_health_and_version_where_allowed(tmp_path: Path) -> None:
    async with serving(tmp_path, allows_anonymous=True) as server:
        for path in ("/healthz", "/readyz", "/livez", "/version"):
            assert (await server.ask("GET", path, token="")).status == 200
        answer = await server.ask("GET", "/apis", token="")
        assert answer.status == 403
        assert answer.json["message"] == (
            'forbidden: User "system:anonymous" cannot get path "/apis"'
        )
        assert answer.json["details"] == {}
        assert (await server.ask("GET", "/version", token="wrong")).status == 401


async def test_user_without_rules_may_only_discover_and_list_classes(server: Running) -> None:
    assert (await server.ask("GET", "/apis", token="alice-token")).status == 200
    # Everybody may see which classes there are to choose from.
    assert (await server.ask("GET", CLASSES, token="alice-token")).status == 200
    answer = await server.ask("DELETE", f"{CLASSES}/pc", token="alice-token")
    assert answer.status == 403
    assert answer.json["message"] == (
        'runtimeclasses.node.k8s.io "pc" is forbidden: User "alice" cannot delete resource '
        '"runtimeclasses" in API group "node.k8s.io" at the cluster scope'
    )
    assert answer.json["details"] == {
        "name": "pc", "group": "node.k8s.io", "kind": "runtimeclasses",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/apis/none", 404, "404 page not found\n"),
        ("GET", "/apis/none/v1/things", 404, "404 page not found\n"),
        ("GET", "/api/v1/pods?labelSelector=a%3D%3D%3Db", 400,
         "unable to parse requirement: found '=', expected: identifier"),
        ("GET", "/api/v1/pods?resourceVersion=x", 400,
         'invalid resource version: resourceVersion: Invalid value: "x": strconv.ParseUint: '
         'parsing "x": invalid syntax'),
        ("GET", "/api/v1/pods?watch=1&resourceVersion=x", 500,
         'resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax'),
        ("POST", f"{CLASSES}?fieldValidation=Foo", 422,
         'CreateOptions.meta.k8s.io "" is invalid: fieldValidation: Unsupported value: "Foo": '
         'supported values: "", "Ignore", "Strict", "Warn"'),
        ("GET", "/apis/node.k8s.io/v9", 404, "the server could not find the requested resource"),
        ("GET", "/api/v1/things", 404, "the server could not find the requested resource"),
        ("GET", f"{CLASSES}/x/status", 404, "the server could not find the requested resource"),
        ("GET", "/apis/node.k8s.io/v1/namespaces/a/runtimeclasses", 404,
         "the server could not find the requested resource"),
        ("GET", f"{CLASSES}/x", 404, 'runtimeclasses.node.k8s.io "x" not found'),
        ("DELETE", f"{CLASSES}/x", 404, 'runtimeclasses.node.k8s.io "x" not found'),
        ("POST", f"{CLASSES}/x", 405,
         "the server does not allow this method on the requested resource"),
        ("PUT", CLASSES, 405, "the server does not allow this method on the requested resource"),
        ("OPTIONS", CLASSES, 405,
         "the server does not allow this method on the requested resource"),
        ("DELETE", "/api/v1/namespaces", 405,
         "the server does not allow this method on the requested resource"),
    ],
)  # fmt: skip
async def test_what_is_not_there_and_what_is_not_done(
    server: Running, method: str, path: str, status: int, message: str
) -> None:
    body = runtime_class("q") if method == "POST" else None
    answer = await server.ask(method, path, body)
    assert answer.status == status
    result = answer.text if answer.text.startswith("404") else answer.json["message"]
    assert result == message


def runtime_class(name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name},
            "handler": "runc", **fields}  # fmt: skip


async def test_a_class_lives_and_goes(server: Running) -> None:
    created = await server.ask("POST", CLASSES, runtime_class("a"))
    assert created.status == 201
    assert {"Audit-Id", "Date", "Cache-Control"} <= set(created.headers)
    assert list(created.json)[:3] == ["kind", "apiVersion", "metadata"]
    assert created.json["metadata"]["managedFields"][0]["manager"] == "Python"
    again = await server.ask("POST", CLASSES, runtime_class("a"))
    assert (again.status, again.json["reason"]) == (409, "AlreadyExists")
    listed = (await server.ask("GET", CLASSES)).json
    assert listed["kind"] == "RuntimeClassList"
    assert "kind" not in listed["items"][0]
    gone = await server.ask("DELETE", f"{CLASSES}/a")
    assert gone.json["status"] == "Success"
    assert gone.json["details"]["uid"] == created.json["metadata"]["uid"]
    assert "code" not in gone.json


async def test_an_update_creates_a_class_and_then_needs_its_revision(server: Running) -> None:
    assert (await server.ask("PUT", f"{CLASSES}/u", runtime_class("u"))).status == 201
    without = await server.ask("PUT", f"{CLASSES}/u", runtime_class("u"))
    assert without.status == 422
    assert without.json["message"] == (
        'runtimeclasses.node.k8s.io "u" is invalid: metadata.resourceVersion: Invalid value: 0: '
        "must be specified for an update"
    )
    stale = runtime_class("u")
    stale["metadata"]["resourceVersion"] = "1"
    conflict = await server.ask("PUT", f"{CLASSES}/u", stale)
    assert conflict.status == 409
    assert conflict.json["message"] == (
        'Operation cannot be fulfilled on runtimeclasses.node.k8s.io "u": the object has been '
        "modified; please apply your changes to the latest version and try again"
    )
    misnamed = await server.ask("PUT", f"{CLASSES}/u", runtime_class("zz"))
    assert misnamed.json["message"] == (
        "the name of the object (zz) does not match the name on the URL (u)"
    )


async def test_every_version_shows_the_one_class(server: Running) -> None:
    await server.ask("POST", CLASSES, runtime_class("a", overhead={"podFixed": {"cpu": "0.1"}}))
    old = await server.ask("GET", CLASSES.replace("/v1/", "/v1alpha1/") + "/a")
    assert old.json["apiVersion"] == "node.k8s.io/v1alpha1"
    assert old.json["spec"] == {"runtimeHandler": "runc", "overhead": {"podFixed": {"cpu": "100m"}}}
    assert "deprecated" in old.headers["Warning"]
    beta = await server.ask("GET", CLASSES.replace("/v1/", "/v1beta1/") + "/a")
    assert beta.json["handler"] == "runc"
    assert beta.headers["Warning"] == (
        '299 - "node.k8s.io/v1beta1 RuntimeClass is deprecated in v1.22+, unavailable in v1.25+"'
    )


async def test_what_deserves_a_word_gets_one(server: Running) -> None:
    odd = runtime_class("a", scheduling={"nodeSelector": {"beta.kubernetes.io/os": "linux"}},
                        unknown=1)  # fmt: skip
    answer = await server.ask("POST", CLASSES, odd)
    assert answer.headers.getall("Warning") == [
        '299 - "unknown field \\"unknown\\""',
        '299 - "scheduling.nodeSelector: deprecated since v1.14; use \\"kubernetes.io/os\\" '
        'instead"',
    ]
    strict = await server.ask("POST", f"{CLASSES}?fieldValidation=Strict", odd)
    assert strict.status == 400
    assert strict.json["message"] == (
        'RuntimeClass in version "v1" cannot be handled as a RuntimeClass: strict decoding error: '
        'unknown field "unknown"'
    )


@pytest.mark.parametrize("value", ["False", "false", "0"])
async def test_list_with_watch_false_is_not_a_watch(server: Running, value: str) -> None:
    answer = await server.ask("GET", f"{CLASSES}?watch={value}")
    assert answer.json["kind"] == "RuntimeClassList"


async def test_a_list_of_one_name_needs_leave_for_that_name_alone(server: Running) -> None:
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "one"},
        "rules": [{"verbs": ["list"], "apiGroups": [""], "resources": ["nodes"],
                   "resourceNames": ["a"]}],
    }  # fmt: skip
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "one"},
        "roleRef": {"kind": "ClusterRole", "name": "one"},
        "subjects": [{"kind": "User", "name": "alice"}],
    }
    root = "/apis/rbac.authorization.k8s.io/v1"
    assert (await server.ask("POST", f"{root}/clusterroles", role)).status == 201
    assert (await server.ask("POST", f"{root}/clusterrolebindings", binding)).status == 201

    async def status(selector: str) -> int:
        path = "/api/v1/nodes" + (f"?fieldSelector={selector}" if selector else "")
        return (await server.ask("GET", path, token="alice-token")).status

    assert await status("metadata.name=a") == 200
    assert await status("metadata.name%3D%3Da") == 200
    assert await status("metadata.name=b") == 403
    assert await status("metadata.name!=a") == 403
    assert await status("metadata.name=a,metadata.name=b") == 200
    assert await status("broken") == 403
    assert await status("") == 403


async def test_a_node_agent_reads_classes_and_its_own_node(server: Running) -> None:
    async def status(path: str) -> int:
        return (await server.ask("GET", path, token="agent-token")).status

    assert await status(CLASSES) == 200
    assert await status("/api/v1/nodes") == 403
    assert await status("/api/v1/nodes?fieldSelector=metadata.name=n1") == 200
    assert await status("/api/v1/nodes/n2") == 403
    assert await status("/api/v1/nodes/n1") == 404
    assert await status("/api/v1/pods") == 403
    assert await status("/api/v1/pods?fieldSelector=spec.nodeName=n1") == 200
    assert await status("/api/v1/secrets") == 403


async def test_a_node_agent_cannot_label_itself_into_trust(server: Running) -> None:
    node: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    assert (await server.ask("POST", "/api/v1/nodes", node, token="agent-token")).status == 201
    label = {"metadata": {"labels": {"node-restriction.kubernetes.io/trusted": "yes"}}}
    for path in ("/api/v1/nodes/n1", "/api/v1/nodes/n1/status"):
        answer = await server.ask(
            "PATCH", path, label, token="agent-token", Content_Type="application/merge-patch+json"
        )
        assert answer.status == 403
        assert "is not allowed to modify labels" in answer.json["message"]


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("application/json", 200),
        ("application/vnd.kubernetes.protobuf,application/json", 200),
        ("application/yaml", 200),
        ("text/html", 406),
    ],
)
async def test_the_form_of_an_answer(server: Running, accept: str, status: int) -> None:
    answer = await server.ask("GET", CLASSES, Accept=accept)
    assert answer.status == status


async def test_text_for_people_is_indented(server: Running) -> None:
    flat = await server.ask("GET", CLASSES)
    assert flat.text.endswith("\n")
    assert flat.text.count("\n") == 1
    for pretty in (
        await server.ask("GET", f"{CLASSES}?pretty=true"),
        await server.ask("GET", CLASSES, User_Agent="curl/8"),
    ):
        assert pretty.json == flat.json
        assert pretty.text.startswith('{\n  "kind"')


@pytest.mark.parametrize("path", ["/openapi/v2", "/openapi/v3/api/v1"])
async def test_documents_that_are_compressed_already_stay_as_they_are(
    server: Running, path: str
) -> None:
    flat = await server.ask("GET", path, Accept_Encoding="identity")
    for encoding in ("identity", "gzip"):
        pretty = await server.ask("GET", f"{path}?pretty=1", Accept_Encoding=encoding)
        assert (pretty.status, pretty.json) == (200, flat.json)
    etag = flat.headers["Etag"]
    assert (await server.ask("GET", f"{path}?pretty=1", If_None_Match=etag)).status == 304


async def test_roles_of_the_system_get_back_what_they_lack(tmp_path: Path) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:kube-scheduler"
    own = {"verbs": ["get"], "apiGroups": ["acme.com"], "resources": ["queues"]}
    async with serving(tmp_path) as server:
        full = (await server.ask("GET", path)).json["rules"]
        cut = {"rules": [full[0], own]}
        answer = await server.ask("PATCH", path, cut, Content_Type="application/merge-patch+json")
        assert answer.status == 200
    async with serving(tmp_path) as server:
        restored = (await server.ask("GET", path)).json["rules"]
        assert restored == [full[0], own, *full[1:]]
        manual = {"rbac.authorization.kubernetes.io/autoupdate": "false"}
        keep = {"metadata": {"annotations": manual}, "rules": []}
        await server.ask("PATCH", path, keep, Content_Type="application/merge-patch+json")
    async with serving(tmp_path) as server:
        assert not (await server.ask("GET", path)).json.get("rules")


async def test_a_head_is_answered_without_a_body(server: Running) -> None:
    # On one connection: a body would be taken for the beginning of the next answer.
    for _ in range(3):
        assert (await server.ask("HEAD", "/api/v1/pods")).status == 405
        assert (await server.ask("GET", "/readyz")).text == "ok"


TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


async def test_a_table_says_how_old_each_object_is(server: Running) -> None:
    for name in ("a", "b"):
        body = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": name,
                "metadata": {"name": name}}  # fmt: skip
        assert (await server.ask("POST", CLASSES, body)).status == 201
    for path, names in ((CLASSES, ["a", "b"]), (f"{CLASSES}/a", ["a"])):
        table = (await server.ask("GET", path, Accept=TABLE)).json
        assert [row["cells"][:2] for row in table["rows"]] == [[name, name] for name in names]
        for row in table["rows"]:
            assert re.fullmatch(r"\d+s", row["cells"][-1]), row


async def test_large_list_is_compressed_if_the_client_accepts_gzip(server: Running) -> None:
    maps = "/api/v1/namespaces/default/configmaps"
    for name in ("a", "b"):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
                "data": {"text": "moor " * 20_000}}  # fmt: skip
        assert (await server.ask("POST", maps, body)).status == 201
    context = server.tls()
    headers = {"Authorization": "Bearer admin-token"}
    sizes = {}
    async with aiohttp.ClientSession(auto_decompress=False, headers=headers) as http:
        for encoding in ("identity", "gzip"):
            async with http.get(
                server.url + maps, ssl=context, headers={"Accept-Encoding": encoding}
            ) as answer:
                body_bytes = await answer.read()
                sizes[encoding] = len(body_bytes)
                assert answer.headers.get("Content-Encoding", "identity") == encoding
                if encoding == "gzip":
                    assert answer.headers["Vary"] == "Accept-Encoding"
                    assert len(gzip.decompress(body_bytes)) == sizes["identity"]
        small = f"{maps}?limit=1&fieldSelector=metadata.name=none"
        async with http.get(
            server.url + small, ssl=context, headers={"Accept-Encoding": "gzip"}
        ) as answer:
            assert "Content-Encoding" not in answer.headers
    assert sizes["gzip"] * 10 < sizes["identity"]
