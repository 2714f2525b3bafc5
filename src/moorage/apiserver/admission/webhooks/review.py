"""AdmissionReview: the request that a webhook gets, and what its answer may say.

Source: API docs `admission.k8s.io/v1`, `v1beta1`; apiserver `webhook/request`, `webhook/errors`.
"""

from __future__ import annotations

import base64
import binascii
from http import HTTPStatus
from typing import Any

import msgspec

from moorage.api import bounds
from moorage.api.errors import StatusError
from moorage.apiserver.admission.admission_request import request_of, shown
from moorage.apiserver.registry.kind import Served
from moorage.apiserver.registry.request import Attributes

VERSIONS = ("v1", "v1beta1")
_GROUP = "admission.k8s.io"
_KIND = "AdmissionReview"
_OPTIONS = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}
_HIGHEST_CODE = 599
_MESSAGE_CHARS = 32 * 1024
_MAX_PATCH_BYTES = 3 * 1024 * 1024
"""As much as the largest body that a user may send."""


class ReviewError(ValueError):
    """The answer of a webhook breaks the rules for AdmissionReviews."""


class _Cause(msgspec.Struct, omit_defaults=True):
    reason: str = ""
    message: str = ""
    field: str = ""


class _Details(msgspec.Struct, omit_defaults=True, rename="camel"):
    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: list[_Cause] = []
    retry_after_seconds: int = 0


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""
    details: _Details | None = None
    code: int = 0


class Response(msgspec.Struct, rename="camel"):
    """What a webhook answers; `patch` is in base64."""

    uid: str = ""
    allowed: bool = False
    status: _Status | None = None
    patch: str | None = None
    patch_type: str | None = None
    warnings: list[str] | None = None
    audit_annotations: dict[str, str] | None = None

    def operations(self) -> bytes:
        """Return the JSON of the patch, empty for none. Raises ReviewError."""
        try:
            patch = base64.b64decode(self.patch or "", validate=True)
        except (binascii.Error, ValueError) as error:
            raise ReviewError(f"response.patch is not base64: {error}") from error
        if len(patch) > _MAX_PATCH_BYTES:
            raise ReviewError(f"response.patch has more than {_MAX_PATCH_BYTES} bytes")
        return patch


class _Review(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    response: Response | None = None


_decoder = msgspec.json.Decoder(_Review)


def review_of(version: str, uid: str, attributes: Attributes, served: Served) -> bytes:
    """Return the AdmissionReview of a write, with its objects in a served version."""
    request = {
        "uid": uid,
        **request_of(attributes, served),
        "object": shown(attributes, served, attributes.obj),
        "oldObject": shown(attributes, served, attributes.old),
        "options": _options(attributes),
    }
    return msgspec.json.encode(
        {"kind": _KIND, "apiVersion": f"{_GROUP}/{version}", "request": request}
    )


def _options(attributes: Attributes) -> dict[str, Any] | None:
    """Return the options of the operation; a connection's are its object."""
    request = attributes.request
    if attributes.operation not in _OPTIONS:
        return None
    options: dict[str, Any] = {
        "kind": _OPTIONS[attributes.operation],
        "apiVersion": "meta.k8s.io/v1",
        **attributes.options,
    }
    if request.is_dry_run:
        options["dryRun"] = ["All"]
    if attributes.operation != "DELETE":
        if request.field_manager:
            options["fieldManager"] = request.field_manager
        if request.field_validation:
            options["fieldValidation"] = request.field_validation
    return options


def response_of(body: bytes, version: str, uid: str, *, is_mutating: bool) -> Response:
    """Return the response in a webhook's answer. Raises ReviewError."""
    if bounds.may_exceed(body):
        raise ReviewError(f"not an {_KIND}: {bounds.TOO_MANY}")
    try:
        review = _decoder.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ReviewError(f"not an {_KIND}: {error}") from error
    response = review.response
    if response is None:
        raise ReviewError("webhook response was absent")
    if version == "v1":
        _check_identity(review, response, uid)
    if is_mutating:
        _check_patch(response, version)
    elif version == "v1" and response.patch:
        raise ReviewError("validating webhook may not return response.patch")
    elif version == "v1" and response.patch_type is not None:
        raise ReviewError("validating webhook may not return response.patchType")
    return response


def _check_identity(review: _Review, response: Response, uid: str) -> None:
    if response.uid != uid:
        raise ReviewError(f'expected response.uid="{uid}", got "{response.uid[:64]}"')
    if (review.api_version, review.kind) != (f"{_GROUP}/v1", _KIND):
        raise ReviewError(
            f"expected webhook response of {_GROUP}/v1, Kind={_KIND}, got "
            f"{review.api_version[:64] or '/'}, Kind={review.kind[:64]}"
        )


def _check_patch(response: Response, version: str) -> None:
    if version != "v1":
        response.patch_type = "JSONPatch" if response.patch else None
    elif response.patch and response.patch_type is None:
        raise ReviewError("webhook returned response.patch but not response.patchType")
    elif not response.patch and response.patch_type is not None:
        raise ReviewError("webhook returned response.patchType but not response.patch")
    elif response.patch_type == "":
        raise ReviewError('webhook returned invalid response.patchType of ""')
    if response.patch and response.patch_type != "JSONPatch":
        raise ReviewError(f'unsupported patch type "{str(response.patch_type)[:64]}"')


def rejection(webhook: str, response: Response) -> StatusError:
    """Return the error of a write that a webhook denies; the code is one of an error."""
    status = response.status or _Status()
    denied = f'admission webhook "{webhook}" denied the request'
    why = (status.message or status.reason)[:_MESSAGE_CHARS]
    code = status.code if HTTPStatus.BAD_REQUEST <= status.code <= _HIGHEST_CODE else 400
    return StatusError(
        f"{denied}: {why}" if why else f"{denied} without explanation",
        None if status.details is None else msgspec.to_builtins(status.details),
        code=code,
        reason=status.reason,
    )
