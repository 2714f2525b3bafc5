"""AdmissionReviews: what a webhook is sent, and which answers break the rules."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from moorage.apiserver.admission.webhooks.review import (
    Response,
    ReviewError,
    rejection,
    response_of,
    review_of,
)
from moorage.apiserver.registry.kinds.pod import POD
from tests.apiserver.admission.writes import pod, write

_UID = "u1"


def answer(version: str = "v1", **response: Any) -> bytes:
    review = {
        "apiVersion": f"admission.k8s.io/{version}",
        "kind": "AdmissionReview",
        "response": {"uid": _UID, "allowed": True, **response},
    }
    return json.dumps(review).encode()


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def read(body: bytes, version: str = "v1", *, is_mutating: bool = True) -> Response:
    return response_of(body, version, _UID, is_mutating=is_mutating)


def problem(body: bytes, version: str = "v1", *, is_mutating: bool = True) -> str:
    with pytest.raises(ReviewError) as caught:
        read(body, version, is_mutating=is_mutating)
    return str(caught.value)


# What is sent.


def sent(version: str = "v1", **more: Any) -> dict[str, Any]:
    attributes = write(obj=pod(), **more)
    attributes.request.field_manager = "kubectl"
    attributes.request.field_validation = "Strict"
    attributes.options = {"propagationPolicy": "Background"} if "old" in more else {}
    review: dict[str, Any] = json.loads(review_of(version, _UID, attributes, POD.storage))
    return review


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_review_names_its_version_and_request(version: str) -> None:
    review = sent(version)
    assert (review["kind"], review["apiVersion"]) == (
        "AdmissionReview",
        f"admission.k8s.io/{version}",
    )
    request = review["request"]
    assert (request["uid"], request["operation"], request["name"]) == (_UID, "CREATE", "p")
    assert request["object"]["kind"] == "Pod"
    assert request["object"]["apiVersion"] == "v1"
    assert request["oldObject"] is None


@pytest.mark.parametrize(
    ("operation", "kind", "more"),
    [
        ("CREATE", "CreateOptions", {}),
        ("UPDATE", "UpdateOptions", {"old": pod()}),
        ("DELETE", "DeleteOptions", {"old": pod()}),
    ],
)
def test_options_are_those_of_the_operation(
    operation: str, kind: str, more: dict[str, Any]
) -> None:
    options = sent(operation=operation, is_dry_run=True, **more)["request"]["options"]
    expected = {"kind": kind, "apiVersion": "meta.k8s.io/v1", "dryRun": ["All"]}
    if "old" in more:
        expected["propagationPolicy"] = "Background"
    if operation != "DELETE":
        expected |= {"fieldManager": "kubectl", "fieldValidation": "Strict"}
    assert options == expected


def test_a_connection_has_its_options_as_object() -> None:
    assert sent(operation="CONNECT")["request"]["options"] is None


def test_a_write_that_is_no_trial_has_no_dry_run_in_its_options() -> None:
    assert "dryRun" not in sent()["request"]["options"]


# What may be answered.


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
@pytest.mark.parametrize("is_mutating", [True, False])
def test_an_answer_without_a_patch_is_read(version: str, *, is_mutating: bool) -> None:
    body = answer(version, warnings=["w"], auditAnnotations={"k": "v"})
    response = read(body, version, is_mutating=is_mutating)
    assert response.allowed
    assert (response.warnings, response.audit_annotations) == (["w"], {"k": "v"})
    assert response.operations() == b""


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_patch_is_decoded(version: str) -> None:
    response = read(answer(version, patch=b64("[]"), patchType="JSONPatch"), version)
    assert response.operations() == b"[]"
    assert response.patch_type == "JSONPatch"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "not an AdmissionReview: "),
        (b"[]", "not an AdmissionReview: "),
        (b'{"response": 1}', "not an AdmissionReview: "),
        (b"\xff", "not an AdmissionReview: "),
        (b'{"a": ' + b"[" * 100_000, "not an AdmissionReview: "),
        (b"{" + b'"a":[],' * 3_000_000, "not an AdmissionReview: "),
        (b"{}", "webhook response was absent"),
        (answer(uid="other"), 'expected response.uid="u1", got "other"'),
        (answer(uid="x" * 100), f'expected response.uid="u1", got "{"x" * 64}"'),
        (answer("v1beta1"), "expected webhook response of admission.k8s.io/v1, "
         "Kind=AdmissionReview, got admission.k8s.io/v1beta1, Kind=AdmissionReview"),
        (json.dumps({"kind": "Other", "response": {"uid": _UID}}).encode(),
         "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, "
         "Kind=Other"),
        (answer(patch=b64("[]")), "webhook returned response.patch but not response.patchType"),
        (answer(patchType="JSONPatch"),
         "webhook returned response.patchType but not response.patch"),
        (answer(patch="", patchType="JSONPatch"),
         "webhook returned response.patchType but not response.patch"),
        (answer(patch=b64("[]"), patchType=""),
         'webhook returned invalid response.patchType of ""'),
        (answer(patch=b64("[]"), patchType="Merge"), 'unsupported patch type "Merge"'),
        (answer(patch=b64("[]"), patchType="M" * 99), f'unsupported patch type "{"M" * 64}"'),
    ],
)  # fmt: skip
def test_an_answer_that_breaks_the_rules_is_refused(body: bytes, text: str) -> None:
    assert problem(body).startswith(text)


def test_a_validating_webhook_may_not_change_anything() -> None:
    refused = {
        "response.patch": answer(patch=b64("[]"), patchType="JSONPatch"),
        "response.patchType": answer(patchType="JSONPatch"),
    }
    for field, body in refused.items():
        assert problem(body, is_mutating=False) == f"validating webhook may not return {field}"


def test_the_former_version_has_neither_uid_nor_type_of_patch_to_keep() -> None:
    body = json.dumps({"response": {"allowed": True, "patch": b64("[]")}}).encode()
    assert read(body, "v1beta1").patch_type == "JSONPatch"
    assert read(body, "v1beta1", is_mutating=False).allowed
    without = json.dumps({"response": {"allowed": True, "patchType": "Merge"}}).encode()
    assert read(without, "v1beta1").patch_type is None


@pytest.mark.parametrize(
    ("patch", "text"),
    [
        ("!", "response.patch is not base64: "),
        ("YQ", "response.patch is not base64: "),
        (b64("x" * (3 * 1024 * 1024 + 1)), "response.patch has more than 3145728 bytes"),
    ],
)
def test_a_patch_that_is_none(patch: str, text: str) -> None:
    response = read(answer(patch=patch, patchType="JSONPatch"))
    with pytest.raises(ReviewError) as caught:
        response.operations()
    assert str(caught.value).startswith(text)


def test_a_patch_at_the_limit_is_read() -> None:
    response = read(answer(patch=b64("x" * 3 * 1024 * 1024), patchType="JSONPatch"))
    assert len(response.operations()) == 3 * 1024 * 1024


# Denials.


@pytest.mark.parametrize(
    ("status", "code", "reason", "message"),
    [
        (None, 400, "", "without explanation"),
        ({}, 400, "", "without explanation"),
        ({"message": "no"}, 400, "", ": no"),
        ({"reason": "Forbidden"}, 400, "Forbidden", ": Forbidden"),
        ({"message": "no", "reason": "Forbidden", "code": 403}, 403, "Forbidden", ": no"),
        ({"message": "no", "code": 400}, 400, "", ": no"),
        ({"message": "no", "code": 599}, 599, "", ": no"),
        ({"message": "no", "code": 600}, 400, "", ": no"),
        ({"message": "no", "code": 399}, 400, "", ": no"),
        ({"message": "no", "code": 200}, 400, "", ": no"),
        ({"message": "x" * 40_000}, 400, "", ": " + "x" * 32 * 1024),
    ],
)
def test_a_denial_has_the_status_that_the_webhook_chose(
    status: dict[str, Any] | None, code: int, reason: str, message: str
) -> None:
    response = read(answer(allowed=False, status=status))
    assert not response.allowed
    error = rejection("a.hooks.example", response)
    separator = "" if message.startswith(":") else " "
    assert error.message == (
        f'admission webhook "a.hooks.example" denied the request{separator}{message}'
    )
    shown = error.to_object()
    assert (shown["code"], shown.get("reason", "")) == (code, reason)
    assert "details" not in shown


def test_an_answer_that_does_not_say_that_a_write_is_allowed_denies_it() -> None:
    body = json.dumps({"response": {"uid": _UID}}).encode()
    assert not read(body, "v1beta1").allowed


def test_the_details_of_a_denial_are_kept() -> None:
    details = {
        "name": "p", "group": "g", "kind": "Pod", "uid": "u", "retryAfterSeconds": 3,
        "causes": [{"reason": "r", "message": "m", "field": "f"}],
    }  # fmt: skip
    error = rejection("a", read(answer(allowed=False, status={"details": details})))
    assert error.to_object()["details"] == details
