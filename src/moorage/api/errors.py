"""API errors: the one exception tree that reaches clients, and its Status form.

Every failure a caller can act on is a `StatusError`; the API server encodes it as a
`meta.k8s.io/v1 Status`, the client decodes a Status to the same class, so a controller can
`except NotFoundError` whether the error is local or came over the network.

    StatusError
    ├── BadRequestError 400 · UnauthorizedError 401 · ForbiddenError 403 · NotFoundError 404
    ├── MethodNotAllowedError 405 · NotAcceptableError 406
    ├── AlreadyExistsError 409 · ConflictError 409 · ExpiredError 410
    ├── TooLargeError 413 · UnsupportedMediaTypeError 415 · InvalidError 422
    ├── TooManyRequestsError 429
    └── InternalError 500 · UnavailableError 503 · ServerTimeoutError 504

Source: apimachinery `metav1.Status`, API conventions "Response Status Kind".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import msgspec

# Operation error: the base of failures that a user can act on, one sentence each.


class OperationError(Exception):
    """An operation failed. The text says what failed, why, and what to do."""


# Limits on one error response: a hostile object can have a hundred thousand errors, each about a
# list of a hundred thousand items.
_SHOWN_ERRORS = 500
_SHOWN_ITEMS = 100
_SHOWN_CHARS = 4096


class Cause(msgspec.Struct, frozen=True):
    """One entry of `status.details.causes`."""

    reason: str
    message: str
    field: str = ""

    def to_object(self) -> dict[str, str]:
        wire = {"reason": self.reason, "message": self.message, "field": self.field}
        return {key: value for key, value in wire.items() if value}


class StatusError(Exception):
    """A failed API call: HTTP code, machine-readable reason and human-readable message.

    `details` is the `status.details` object, or None where Kubernetes sends none; `list_meta` the
    Status's own metadata, which only an expired list has.
    """

    code: ClassVar[int] = 500
    reason: ClassVar[str] = ""

    def __init__(
        self,
        message: str,
        details: dict[str, Any] | None = None,
        *,
        code: int | None = None,
        reason: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        self.status_code = self.code if code is None else code
        self.status_reason = self.reason if reason is None else reason
        self.list_meta: dict[str, Any] = {}

    def to_object(self) -> dict[str, Any]:
        """Return the `Status` object as sent on the wire."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.list_meta,
            "status": "Failure",
            "message": self.message,
        }
        if self.status_reason:
            status["reason"] = self.status_reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.status_code
        return status

    @property
    def retry_after_seconds(self) -> int | None:
        """Return the retry delay requested by the server in seconds, if any."""
        return (self.details or {}).get("retryAfterSeconds")

    @staticmethod
    def from_object(status: dict[str, Any]) -> StatusError:
        """Return the exception for a `Status` received from a server."""
        reason = status.get("reason", "")
        code = status.get("code", 500)
        kind = _CLASS_BY_REASON.get(reason) or _CLASS_BY_CODE.get(code, StatusError)
        return kind._rebuild(status.get("message", ""), status.get("details"), code, reason)

    @classmethod
    def _rebuild(cls, message: str, details: dict[str, Any] | None, code: int, reason: str) -> Self:
        error = cls.__new__(cls)
        StatusError.__init__(error, message, details, code=code, reason=reason)
        return error


def _object_details(resource: str, group: str, name: str) -> dict[str, Any]:
    details = {"name": name, "group": group, "kind": resource}
    return {key: value for key, value in details.items() if value}


def qualified(resource: str, group: str) -> str:
    """Return `runtimeclasses.node.k8s.io`, or just `pods` for the core group."""
    return f"{resource}.{group}" if group else resource


class BadRequestError(StatusError):
    code = 400
    reason = "BadRequest"


class UnauthorizedError(StatusError):
    code = 401
    reason = "Unauthorized"

    def __init__(self, message: str = "Unauthorized") -> None:
        super().__init__(message)


class ForbiddenError(StatusError):
    """403. Build with `of` for an object, directly for anything else."""

    code = 403
    reason = "Forbidden"

    @classmethod
    def of(cls, resource: str, name: str, why: str, *, group: str = "") -> ForbiddenError:
        subject = f'{qualified(resource, group)} "{name}"' if name else qualified(resource, group)
        return cls(f"{subject} is forbidden: {why}", _object_details(resource, group, name))


class NotFoundError(StatusError):
    code = 404
    reason = "NotFound"

    @classmethod
    def of(cls, resource: str, name: str, *, group: str = "") -> NotFoundError:
        return cls(
            f'{qualified(resource, group)} "{name}" not found',
            _object_details(resource, group, name),
        )

    @classmethod
    def no_such_resource(cls) -> NotFoundError:
        return cls("the server could not find the requested resource", {})


class MethodNotAllowedError(StatusError):
    code = 405
    reason = "MethodNotAllowed"

    def __init__(
        self, message: str = "the server does not allow this method on the requested resource"
    ) -> None:
        super().__init__(message, {})


class NotAcceptableError(StatusError):
    code = 406
    reason = "NotAcceptable"


class AlreadyExistsError(StatusError):
    code = 409
    reason = "AlreadyExists"

    @classmethod
    def of(cls, resource: str, name: str, *, group: str = "") -> AlreadyExistsError:
        return cls(
            f'{qualified(resource, group)} "{name}" already exists',
            _object_details(resource, group, name),
        )


class ConflictError(StatusError):
    code = 409
    reason = "Conflict"

    MODIFIED: ClassVar[str] = (
        "the object has been modified; please apply your changes to the latest version "
        "and try again"
    )

    @classmethod
    def of(cls, resource: str, name: str, why: str, *, group: str = "") -> ConflictError:
        return cls(
            f'Operation cannot be fulfilled on {qualified(resource, group)} "{name}": {why}',
            _object_details(resource, group, name),
        )


class ExpiredError(StatusError):
    """410: the requested revision is compacted; list again."""

    code = 410
    reason = "Expired"


class TooLargeError(StatusError):
    code = 413
    reason = "RequestEntityTooLarge"

    @classmethod
    def limit(cls, limit_bytes: int) -> TooLargeError:
        return cls(f"Request entity too large: limit is {limit_bytes}")


class UnsupportedMediaTypeError(StatusError):
    code = 415
    reason = "UnsupportedMediaType"


class TooManyRequestsError(StatusError):
    code = 429
    reason = "TooManyRequests"


class InternalError(StatusError):
    code = 500
    reason = "InternalError"

    @classmethod
    def of(cls, why: str) -> InternalError:
        return cls(f"Internal error occurred: {why}", {"causes": [{"message": why}]})


class UnavailableError(StatusError):
    code = 503
    reason = "ServiceUnavailable"


class ServerTimeoutError(StatusError):
    code = 504
    reason = "Timeout"


class FieldError(msgspec.Struct, frozen=True):
    """One error of one field, worded as apimachinery's `field.Error`.

    `kind` is the cause's reason (`FieldValueInvalid`, …); `text` the part after the path.
    """

    field: str
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.field}: {self.text}"

    @classmethod
    def required(cls, field: str, detail: str = "") -> FieldError:
        text = f"Required value: {detail}" if detail else "Required value"
        return cls(field, "FieldValueRequired", text)

    @classmethod
    def invalid(cls, field: str, value: Any, detail: str = "") -> FieldError:
        text = f"Invalid value: {_shown(value)}"
        return cls(field, "FieldValueInvalid", f"{text}: {detail}" if detail else text)

    @classmethod
    def not_supported(cls, field: str, value: Any, supported: Sequence[str]) -> FieldError:
        listed = ", ".join(f'"{item}"' for item in supported)
        text = f"Unsupported value: {_shown(value)}: supported values: {listed}"
        return cls(field, "FieldValueNotSupported", text)

    @classmethod
    def forbidden(cls, field: str, detail: str) -> FieldError:
        return cls(field, "FieldValueForbidden", f"Forbidden: {detail}")

    @classmethod
    def duplicate(cls, field: str, value: Any) -> FieldError:
        return cls(field, "FieldValueDuplicate", f"Duplicate value: {_shown(value)}")

    @classmethod
    def not_found(cls, field: str, value: Any) -> FieldError:
        return cls(field, "FieldValueNotFound", f"Not found: {_shown(value)}")

    @classmethod
    def too_long(cls, field: str, limit_bytes: int) -> FieldError:
        text = f"Too long: may not be more than {limit_bytes} bytes"
        return cls(field, "FieldValueTooLong", text)

    @classmethod
    def too_many(cls, field: str, count: int, limit: int) -> FieldError:
        text = f"Too many: {count}: must have at most {limit} items"
        return cls(field, "FieldValueTooMany", text)


def _shown(value: Any) -> str:
    """Format a value for field errors: strings quoted, the rest as JSON."""
    if isinstance(value, str):
        return _cut(json.dumps(value[:_SHOWN_CHARS], ensure_ascii=False), len(value))
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if value is None:
        return "null"
    if isinstance(value, list):
        # Many errors can refer to one list.
        value = value[:_SHOWN_ITEMS]
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return _cut(text[:_SHOWN_CHARS], len(text))


def _cut(text: str, length: int) -> str:
    return text if length <= _SHOWN_CHARS else text + "..."


class InvalidError(StatusError):
    """422: the object violates its kind's rules; one cause per violation."""

    code = 422
    reason = "Invalid"

    errors: tuple[FieldError, ...] = ()

    @classmethod
    def of(
        cls, kind: str, name: str, errors: Iterable[FieldError], *, group: str = ""
    ) -> InvalidError:
        """Return the 422 error of an object with these field errors; the details list them."""
        field_errors = tuple(errors)
        more = (
            f", and {len(field_errors) - _SHOWN_ERRORS} more"
            if len(field_errors) > _SHOWN_ERRORS
            else ""
        )
        field_errors = field_errors[:_SHOWN_ERRORS]
        # One that is found twice is said once, though it has two causes.
        texts = dict.fromkeys(map(str, field_errors))
        shown = f"{', '.join(texts)}{more}"
        if len(texts) > 1 or more:
            shown = f"[{shown}]"
        details = _object_details(kind, group, name)
        details["causes"] = [Cause(e.kind, e.text, e.field).to_object() for e in field_errors]
        subject = qualified(kind, group)
        error = cls(f'{subject} "{name}" is invalid: {shown}', details)
        error.errors = field_errors
        return error


_CLASSES: tuple[type[StatusError], ...] = (
    BadRequestError,
    UnauthorizedError,
    ForbiddenError,
    NotFoundError,
    MethodNotAllowedError,
    NotAcceptableError,
    AlreadyExistsError,
    ConflictError,
    ExpiredError,
    TooLargeError,
    UnsupportedMediaTypeError,
    InvalidError,
    TooManyRequestsError,
    InternalError,
    UnavailableError,
    ServerTimeoutError,
)
_CLASS_BY_REASON: dict[str, type[StatusError]] = {
    **{cls.reason: cls for cls in _CLASSES},
    "Gone": ExpiredError,
}
_CLASS_BY_CODE: dict[int, type[StatusError]] = {cls.code: cls for cls in reversed(_CLASSES)}
