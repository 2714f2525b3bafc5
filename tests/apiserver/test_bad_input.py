"""Malformed, huge, hostile, late, twice: the right code, reason and message; the server stays."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import tempfile
import urllib.parse
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from moorage.cluster.access.identities import Authority, Subject
from tests.running import RunningCluster, pod, runtime_class

CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
PODS = "/api/v1/namespaces/default/pods"


@dataclass
class Answer:
    status: int
    body: Any
    warnings: list[str]

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))


class Raw:
    """Requests as bytes, with any credentials, to one server."""

    def __init__(self, cluster: RunningCluster) -> None:
        kubeconfig = yaml.safe_load(cluster.kubeconfig.read_text())
        self.authority = kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"]
        self.user = kubeconfig["users"][0]["user"]
        url = urllib.parse.urlsplit(kubeconfig["clusters"][0]["cluster"]["server"])
        self.host, self.port = str(url.hostname), int(url.port or 443)

    def context(self, certificate: bytes = b"", key: bytes = b"") -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=base64.b64decode(self.authority).decode())
        if certificate:
            with tempfile.NamedTemporaryFile() as pair:
                pair.write(certificate + b"\n" + key)
                pair.flush()
                context.load_cert_chain(pair.name)
        return context

    def admin(self) -> ssl.SSLContext:
        return self.context(
            base64.b64decode(self.user["client-certificate-data"]),
            base64.b64decode(self.user["client-key-data"]),
        )

    def __call__(
        self,
        method: str,
        path: str,
        body: bytes | dict[str, Any] | None = None,
        content_type: str = "application/json",
        *,
        context: ssl.SSLContext | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        connection = http.client.HTTPSConnection(
            self.host, self.port, context=context or self.admin(), timeout=30
        )
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        sent = dict(headers or {})
        if data is not None:
            sent["Content-Type"] = content_type
        try:
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        try:
            decoded = json.loads(text)
        except ValueError:
            decoded = {"message": text.decode(errors="replace")}
        return Answer(answer.status, decoded, answer.headers.get_all("Warning") or [])


@pytest.fixture(scope="module")
def raw(control_plane: RunningCluster) -> Raw:
    return Raw(control_plane)


@pytest.fixture(autouse=True)
def _the_server_stays_up(raw: Raw) -> Iterator[None]:
    yield
    assert raw("GET", "/readyz").status == 200


def _name() -> str:
    return f"bad-{uuid.uuid4().hex[:8]}"


@pytest.mark.parametrize(
    ("body", "content_type", "status", "reason", "message"),
    [
        (b"{", "application/json", 400, "BadRequest", "get version/kind; json parse error"),
        (b"", "application/json", 400, "BadRequest", "json parse error"),
        (b"[]", "application/json", 400, "BadRequest", "cannot unmarshal array"),
        (b"\xff\xfe\x00", "application/json", 400, "BadRequest", "json parse error"),
        (b"[" * 100_000, "application/json", 400, "BadRequest", "json parse error"),
        (b"a: [", "application/yaml", 400, "BadRequest", "yaml: line"),
        (b"a: &a [*a, *a]", "application/yaml", 400, "BadRequest", ""),
        (b"k8s\x00\xff\xff", "application/vnd.kubernetes.protobuf", 400, "BadRequest", ""),
        (b"x", "text/plain", 415, "UnsupportedMediaType", "accepted media types"),
        (b'{"apiVersion":"v1","kind":"Pod"}', "application/json", 400, "BadRequest", ""),
    ],
    ids=["cut", "empty", "array", "not-utf8", "deep", "yaml", "yaml-cycle", "protobuf", "type",
         "other-kind"],
)  # fmt: skip
def test_invalid_runtime_class_bodies_are_rejected(
    raw: Raw, body: bytes, content_type: str, status: int, reason: str, message: str
) -> None:
    answer = raw("POST", CLASSES, body, content_type)
    assert (answer.status, answer.reason) == (status, reason)
    assert message in answer.message


@pytest.mark.parametrize(
    "handler",
    ["", "Run", "run.c", "-run", "run-", "r" * 64, "run c", "../runc", "ünï", "run/c", "run_c"],
)
@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
def test_bad_handlers_are_refused_in_every_version(raw: Raw, version: str, handler: str) -> None:
    document: dict[str, Any] = {
        "apiVersion": f"node.k8s.io/{version}",
        "kind": "RuntimeClass",
        "metadata": {"name": _name()},
    }
    document |= (
        {"spec": {"runtimeHandler": handler}} if version == "v1alpha1" else {"handler": handler}
    )
    answer = raw("POST", f"/apis/node.k8s.io/{version}/runtimeclasses", document)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.body["details"]["causes"][0]["field"].lower().endswith("handler")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("handler", 5, "cannot unmarshal number into Go struct field RuntimeClass.handler"),
        ("handler", ["a"], "cannot unmarshal array"),
        ("overhead", "much", "cannot unmarshal string"),
        ("metadata", {"name": "x", "labels": {"a": 1}}, "cannot unmarshal number"),
        (
            "overhead",
            {"podFixed": {"cpu": "a lot"}},
            "quantities must match the regular expression",
        ),
    ],
    ids=["number", "array", "string", "label", "quantity"],
)
def test_wrong_types_are_named(raw: Raw, field: str, value: Any, message: str) -> None:
    answer = raw("POST", CLASSES, runtime_class(_name(), "runc") | {field: value})
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert message in answer.message


def test_a_body_of_four_megabytes_is_too_large(raw: Raw) -> None:
    document = runtime_class(_name(), "runc")
    document["metadata"]["annotations"] = {"a": "x" * (4 << 20)}
    answer = raw("POST", CLASSES, document)
    assert (answer.status, answer.reason) == (413, "RequestEntityTooLarge")


@pytest.mark.parametrize(
    ("validation", "status", "warnings"), [("Strict", 400, 0), ("Warn", 201, 2), ("Ignore", 201, 0)]
)
def test_unknown_and_duplicate_fields(
    raw: Raw, validation: str, status: int, warnings: int
) -> None:
    text = (
        json.dumps(runtime_class(_name(), "runc")).removesuffix("}")
        + ', "handler": "crun", "colour": "red"}'
    )
    answer = raw("POST", f"{CLASSES}?fieldValidation={validation}", text.encode())
    assert answer.status == status
    assert len(answer.warnings) == warnings
    if validation == "Strict":
        assert 'strict decoding error: duplicate field "handler", unknown field "colour"' in (
            answer.message
        )


def test_the_second_of_two_writers_loses(raw: Raw) -> None:
    name = _name()
    created = raw("POST", CLASSES, runtime_class(name, "runc")).body
    first = created | {"metadata": created["metadata"] | {"labels": {"w": "1"}}}
    second = created | {"metadata": created["metadata"] | {"labels": {"w": "2"}}}
    assert raw("PUT", f"{CLASSES}/{name}", first).status == 200
    answer = raw("PUT", f"{CLASSES}/{name}", second)
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert "the object has been modified" in answer.message


def test_the_same_name_twice(raw: Raw) -> None:
    name = _name()
    assert raw("POST", CLASSES, runtime_class(name, "runc")).status == 201
    answer = raw("POST", CLASSES, runtime_class(name, "runc"))
    assert (answer.status, answer.reason) == (409, "AlreadyExists")
    assert answer.message == f'runtimeclasses.node.k8s.io "{name}" already exists'


def test_a_handler_never_changes(raw: Raw) -> None:
    name = _name()
    raw("POST", CLASSES, runtime_class(name, "runc"))
    answer = raw("PATCH", f"{CLASSES}/{name}", {"handler": "crun"}, "application/merge-patch+json")
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert "field is immutable" in answer.message


def test_a_class_in_use_can_be_deleted_and_its_pods_stay(raw: Raw) -> None:
    name = _name()
    raw("POST", CLASSES, runtime_class(name, "runc"))
    assert raw("POST", PODS, pod(name, runtime_class=name)).status == 201
    assert raw("DELETE", f"{CLASSES}/{name}").status == 200
    assert raw("GET", f"{PODS}/{name}").body["spec"]["runtimeClassName"] == name
    raw("DELETE", f"{PODS}/{name}")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (pod("p", runtime_class="no-such-class"), 'RuntimeClass "no-such-class" not found'),
        (pod("p", runtime_class="Bad_Name"), "spec.runtimeClassName: Invalid value"),
        (pod("p", overhead={"cpu": "1"}), "may only be set via the RuntimeClass"),
    ],
    ids=["unknown", "no-name", "overhead-alone"],
)
def test_pods_that_misuse_classes(raw: Raw, document: dict[str, Any], message: str) -> None:
    answer = raw("POST", PODS, document)
    assert answer.status in (403, 422)
    assert message in answer.message or "RuntimeClass" in answer.message


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        (f"{CLASSES}?labelSelector=a%3D%3D%3Db", 400, "BadRequest"),
        (f"{CLASSES}?fieldSelector=colour%3Dred", 400, "BadRequest"),
        (f"{CLASSES}?limit=many", 400, "BadRequest"),
        (f"{CLASSES}?resourceVersion=old", 400, "BadRequest"),
        (f"{CLASSES}?continue=%00", 400, "BadRequest"),
        (f"{CLASSES}?resourceVersion=99999999", 504, "Timeout"),
        (f"{CLASSES}/no-such-class", 404, "NotFound"),
        ("/apis/node.k8s.io/v2/runtimeclasses", 404, "NotFound"),
        (f"{PODS}/../../../../etc/passwd", 404, None),
    ],
)
def test_questions_without_an_answer(raw: Raw, path: str, status: int, reason: str | None) -> None:
    answer = raw("GET", path)
    assert answer.status == status
    if reason is not None:
        assert answer.reason == reason


def test_a_watch_from_the_future_is_answered_in_time(raw: Raw) -> None:
    answer = raw("GET", f"{CLASSES}?watch=1&resourceVersion=99999999&timeoutSeconds=1")
    assert answer.status in (200, 504)


@pytest.mark.parametrize(
    "token",
    ["nonsense", "a.b.c", "eyJhbGciOiJub25lIn0.eyJzdWIiOiJzeXN0ZW06YWRtaW4ifQ.", "x" * 10_000],
    ids=["word", "dots", "unsigned", "long"],
)
def test_invalid_tokens_are_rejected(raw: Raw, token: str) -> None:
    answer = raw(
        "GET", CLASSES, context=raw.context(), headers={"Authorization": f"Bearer {token}"}
    )
    assert (answer.status, answer.reason) in ((401, "Unauthorized"), (400, ""), (431, ""))


def test_request_without_credentials_is_unauthorized(raw: Raw) -> None:
    answer = raw("GET", CLASSES, context=raw.context())
    assert (answer.status, answer.reason, answer.message) == (401, "Unauthorized", "Unauthorized")


def test_a_certificate_of_another_authority_is_refused(raw: Raw, tmp_path: Path) -> None:
    foreign = Authority(tmp_path, datetime.now(UTC)).issue("x", Subject("me", "system:masters"))
    context = raw.context(foreign.certificate.read_bytes(), foreign.key.read_bytes())
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
        raw("GET", CLASSES, context=context)


def test_half_a_request_costs_nothing(raw: Raw) -> None:
    for sent in (b"", b"GET / HT", b"POST /api HTTP/1.1\r\nContent-Length: 100\r\n\r\n{"):
        with (
            socket.create_connection((raw.host, raw.port)) as plain,
            raw.admin().wrap_socket(plain, server_hostname=raw.host) as secured,
        ):
            secured.sendall(sent)


def test_plain_http_is_not_spoken(raw: Raw) -> None:
    with socket.create_connection((raw.host, raw.port), timeout=10) as plain:
        plain.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
        try:
            answer = plain.recv(100)
        except ConnectionResetError:
            answer = b""
    assert b"200" not in answer


def test_a_refusal_says_the_same_each_time_a_name_would_be_generated(raw: Raw) -> None:
    document = pod("x", runtime_class="no-such-class")
    document["metadata"] = {"generateName": "web-"}
    messages = {raw("POST", PODS, document).message for _ in range(2)}
    assert messages == {
        'pods "web-" is forbidden: pod rejected: RuntimeClass "no-such-class" not found'
    }
