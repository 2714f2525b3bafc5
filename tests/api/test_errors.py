from __future__ import annotations

from typing import Any

import pytest

from moorage.api.errors import (
    AlreadyExistsError,
    ConflictError,
    ExpiredError,
    FieldError,
    ForbiddenError,
    InternalError,
    InvalidError,
    MethodNotAllowedError,
    NotFoundError,
    StatusError,
    TooLargeError,
    UnauthorizedError,
)

ERRORS = [
    NotFoundError.of("pods", "x"),
    NotFoundError.of("runtimeclasses", "x", group="node.k8s.io"),
    AlreadyExistsError.of("pods", "x"),
    ConflictError.of("pods", "x", ConflictError.MODIFIED),
    ForbiddenError.of("pods", "", "no"),
    InvalidError.of("Pod", "x", [FieldError.required("spec.a"), FieldError.invalid("b", 1, "no")]),
    ExpiredError("too old"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_survives_the_wire(error: StatusError) -> None:
    back = StatusError.from_object(error.to_object())
    assert type(back) is type(error)
    assert back.to_object() == error.to_object()


def test_the_status_of_a_missing_class_is_what_clients_match_on() -> None:
    assert NotFoundError.of("runtimeclasses", "x", group="node.k8s.io").to_object() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'runtimeclasses.node.k8s.io "x" not found',
        "reason": "NotFound",
        "details": {"name": "x", "group": "node.k8s.io", "kind": "runtimeclasses"},
        "code": 404,
    }


def test_several_field_errors_are_listed_in_brackets() -> None:
    error = InvalidError.of(
        "Pod", "p", [FieldError.required("spec.a"), FieldError.duplicate("spec.b", "x")]
    )
    assert error.message == (
        'Pod "p" is invalid: [spec.a: Required value, spec.b: Duplicate value: "x"]'
    )


def test_an_unknown_reason_falls_back_to_its_code() -> None:
    error = StatusError.from_object({"code": 404, "message": "gone", "reason": "Odd"})
    assert isinstance(error, NotFoundError)
    assert error.status_reason == "Odd"


def test_a_refusal_of_many_errors_has_a_size() -> None:
    # Quadratic, this would be 4,000 errors of 200 kB each.
    owners = [{"kind": "Node", "name": f"n{number}", "controller": True} for number in range(4_000)]
    errors = [FieldError.invalid("metadata.ownerReferences", owners, "only one") for _ in owners]
    refusal = InvalidError.of("Pod", "p", errors)
    assert len(refusal.message) < 3_000_000
    assert refusal.message.endswith(", and 3500 more]")
    assert len((refusal.details or {})["causes"]) == 500


def test_a_long_value_is_cut() -> None:
    assert FieldError.invalid("a", "x" * 4096, "no").text == f'Invalid value: "{"x" * 4096}": no'
    cut = FieldError.invalid("a", "x" * 4097, "no").text
    assert cut == f'Invalid value: "{"x" * 4096}"...: no'
    assert len(FieldError.invalid("a", "x" * 1_000_000, "no").text) < 5_000
    assert len(FieldError.invalid("a", {"k": "x" * 1_000_000}, "no").text) < 5_000


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (FieldError.required("at"), "FieldValueRequired", "Required value"),
        (FieldError.required("at", "why"), "FieldValueRequired", "Required value: why"),
        (FieldError.invalid("at", "é", "why"), "FieldValueInvalid", 'Invalid value: "é": why'),
        (FieldError.not_supported("at", "c", ("a", "b")), "FieldValueNotSupported",
         'Unsupported value: "c": supported values: "a", "b"'),
        (FieldError.forbidden("at", "why"), "FieldValueForbidden", "Forbidden: why"),
        (FieldError.duplicate("at", True), "FieldValueDuplicate", "Duplicate value: true"),
        (FieldError.not_found("at", None), "FieldValueNotFound", "Not found: null"),
        (FieldError.too_long("at", 9), "FieldValueTooLong",
         "Too long: may not be more than 9 bytes"),
        (FieldError.too_many("at", 9, 8), "FieldValueTooMany",
         "Too many: 9: must have at most 8 items"),
        (FieldError.duplicate("at", {"b": [1, "é"]}), "FieldValueDuplicate",
         'Duplicate value: {"b":[1,"é"]}'),
        (FieldError.duplicate("at", list(range(101))), "FieldValueDuplicate",
         f"Duplicate value: [{','.join(map(str, range(100)))}]"),
    ],
)  # fmt: skip
def test_field_errors_have_the_text_of_apimachinery(
    error: FieldError, kind: str, text: str
) -> None:
    assert (error.field, error.kind, error.text) == ("at", kind, text)
    assert str(error) == f"at: {text}"


@pytest.mark.parametrize(("count", "more"), [(500, ""), (501, ", and 1 more")])
def test_so_many_errors_are_shown(count: int, more: str) -> None:
    refusal = InvalidError.of("Pod", "p", [FieldError.required(f"a{n}") for n in range(count)])
    assert refusal.message.endswith(f"Required value{more}]")
    assert len(refusal.errors) == len((refusal.details or {})["causes"]) == 500


def test_an_error_that_is_found_twice_is_shown_once_and_has_two_causes() -> None:
    refusal = InvalidError.of("Pod", "p", [FieldError.required("a")] * 2)
    assert refusal.message == 'Pod "p" is invalid: a: Required value'
    assert len((refusal.details or {})["causes"]) == 2


def test_one_error_is_shown_without_brackets_and_as_a_cause() -> None:
    refusal = InvalidError.of("RuntimeClass", "x", [FieldError.required("a")], group="node.k8s.io")
    assert refusal.message == 'RuntimeClass.node.k8s.io "x" is invalid: a: Required value'
    cause = {"reason": "FieldValueRequired", "message": "Required value", "field": "a"}
    assert refusal.details == {
        "name": "x", "group": "node.k8s.io", "kind": "RuntimeClass", "causes": [cause],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("error", "message", "details"),
    [
        (StatusError("m"), "m", None),
        (UnauthorizedError(), "Unauthorized", None),
        (ForbiddenError.of("pods", "x", "no", group="g"), 'pods.g "x" is forbidden: no',
         {"name": "x", "group": "g", "kind": "pods"}),
        (ForbiddenError.of("pods", "", "no"), "pods is forbidden: no", {"kind": "pods"}),
        (NotFoundError.no_such_resource(), "the server could not find the requested resource", {}),
        (MethodNotAllowedError(), "the server does not allow this method on the requested resource",
         {}),
        (AlreadyExistsError.of("pods", "x", group="g"), 'pods.g "x" already exists',
         {"name": "x", "group": "g", "kind": "pods"}),
        (ConflictError.of("pods", "x", "no", group="g"),
         'Operation cannot be fulfilled on pods.g "x": no',
         {"name": "x", "group": "g", "kind": "pods"}),
        (TooLargeError.limit(5), "Request entity too large: limit is 5", None),
        (InternalError.of("no"), "Internal error occurred: no", {"causes": [{"message": "no"}]}),
    ],
)  # fmt: skip
def test_messages_and_details(
    error: StatusError, message: str, details: dict[str, Any] | None
) -> None:
    assert (error.message, error.details, str(error)) == (message, details, message)
    assert (error.status_code, error.status_reason) == (error.code, error.reason)
    status = error.to_object()
    assert status.get("details") == details
    assert ("reason" in status) is bool(error.reason)
    assert status["metadata"] == {}


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        ({"reason": "Gone", "code": 410}, ExpiredError, 410),
        ({"reason": "Gone"}, ExpiredError, 500),
        ({"reason": "Conflict", "code": 409}, ConflictError, 409),
        ({"code": 409}, AlreadyExistsError, 409),
        ({"reason": "NotFound"}, NotFoundError, 500),
        ({"code": 418, "reason": "Teapot"}, StatusError, 418),
        ({}, InternalError, 500),
    ],
)
def test_the_class_of_a_status(status: dict[str, Any], kind: type, code: int) -> None:
    error = StatusError.from_object(status)
    assert (type(error), error.status_code, error.message) == (kind, code, "")
    assert error.status_reason == status.get("reason", "")


@pytest.mark.parametrize(
    ("details", "seconds"), [(None, None), ({}, None), ({"retryAfterSeconds": 3}, 3)]
)
def test_how_long_a_client_is_to_wait(details: Any, seconds: int | None) -> None:
    assert StatusError("m", details).retry_after_seconds == seconds


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (400, "BadRequest"), (401, "Unauthorized"), (403, "Forbidden"), (404, "NotFound"),
        (405, "MethodNotAllowed"), (406, "NotAcceptable"), (409, "AlreadyExists"),
        (409, "Conflict"), (410, "Expired"), (413, "RequestEntityTooLarge"),
        (415, "UnsupportedMediaType"), (422, "Invalid"), (429, "TooManyRequests"),
        (500, "InternalError"), (503, "ServiceUnavailable"), (504, "Timeout"),
    ],
)  # fmt: skip
def test_codes_and_reasons_are_those_of_kubernetes(code: int, reason: str) -> None:
    error = StatusError.from_object({"reason": reason})
    assert (type(error).code, type(error).reason) == (code, reason)
    if reason != "Conflict":
        assert type(StatusError.from_object({"code": code})) is type(error)
