from __future__ import annotations

import pytest

from moorage.api.errors import (
    AlreadyExistsError,
    ConflictError,
    ExpiredError,
    FieldError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    StatusError,
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
    # Quadratic, this would be 40,000 errors of 2 MB each.
    owners = [
        {"kind": "Node", "name": f"n{number}", "controller": True} for number in range(40_000)
    ]
    errors = [FieldError.invalid("metadata.ownerReferences", owners, "only one") for _ in owners]
    refusal = InvalidError.of("Pod", "p", errors)
    assert len(refusal.message) < 3_000_000
    assert refusal.message.endswith(", and 39500 more]")
    assert len((refusal.details or {})["causes"]) == 500


def test_a_long_value_is_cut() -> None:
    assert FieldError.invalid("a", "x" * 254, "no").text == f'Invalid value: "{"x" * 254}": no'
    assert len(FieldError.invalid("a", "x" * 1_000_000, "no").text) < 5_000
    assert len(FieldError.invalid("a", {"k": "x" * 1_000_000}, "no").text) < 5_000
