"""Probe and lifecycle hook validation.

Source: core validation `validateProbe`, `validateHandler`.
"""

from __future__ import annotations

import re
from typing import Any

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj

_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_SCHEMES = ("HTTP", "HTTPS")
_COUNTS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold",
           "failureThreshold")  # fmt: skip
_HEADER = re.compile(r"[-A-Za-z0-9]+")
_HEADER_MESSAGE = (
    "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', "
    "regex used for validation is '[-A-Za-z0-9]+')"
)


def probe_errors(probe: Obj, path: str, *, is_readiness: bool) -> list[FieldError]:
    """Validate a probe. Only a readiness probe may have a successThreshold above 1."""
    errors = handler_errors(probe, path)
    errors += [
        FieldError.invalid(f"{path}.{field}", probe[field], "must be greater than or equal to 0")
        for field in _COUNTS
        if probe.get(field, 0) < 0
    ]
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is not None:
        if is_readiness:
            errors.append(
                FieldError.invalid(
                    f"{path}.terminationGracePeriodSeconds",
                    grace,
                    "must not be set for readinessProbes",
                )
            )
        elif grace <= 0:
            errors.append(
                FieldError.invalid(
                    f"{path}.terminationGracePeriodSeconds", grace, "must be greater than 0"
                )
            )
    if not is_readiness and probe.get("successThreshold", 1) != 1:
        errors.append(
            FieldError.invalid(f"{path}.successThreshold", probe["successThreshold"], "must be 1")
        )
    return errors


def lifecycle_errors(lifecycle: Obj, path: str, grace_s: int | None) -> list[FieldError]:
    """Validate postStart and preStop hooks; a sleep must end within the grace period."""
    errors: list[FieldError] = []
    for hook in ("postStart", "preStop"):
        if hook in lifecycle:
            errors += handler_errors(lifecycle[hook], f"{path}.{hook}", grace_s)
    return errors


def handler_errors(handler: Obj, path: str, grace_s: int | None = None) -> list[FieldError]:
    """Validate a probe's or hook's handler: exactly one type, well formed."""
    handler_types = [field for field in _HANDLERS if field in handler]
    if not handler_types:
        return [FieldError.required(path, "must specify a handler type")]
    errors: list[FieldError] = []
    for index, field in enumerate(handler_types):
        at = f"{path}.{field}"
        if index > 0:
            errors.append(FieldError.forbidden(at, "may not specify more than 1 handler type"))
        elif field == "sleep":
            errors += _sleep_errors(handler[field], at, grace_s)
        else:
            errors += _CHECKS[field](handler[field], at)
    return errors


def _exec_errors(action: Obj, path: str) -> list[FieldError]:
    return [] if action.get("command") else [FieldError.required(f"{path}.command")]


def _http_errors(action: Obj, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if not action.get("path"):
        errors.append(FieldError.required(f"{path}.path"))
    errors += port_reference_errors(action.get("port", 0), f"{path}.port")
    scheme = action.get("scheme", "")
    if scheme not in _SCHEMES:
        errors.append(FieldError.not_supported(f"{path}.scheme", scheme, _SCHEMES))
    for header in action.get("httpHeaders", ()):
        if not _HEADER.fullmatch(header.get("name", "")):
            errors.append(
                FieldError.invalid(f"{path}.httpHeaders", header.get("name", ""), _HEADER_MESSAGE)
            )
    return errors


def _tcp_errors(action: Obj, path: str) -> list[FieldError]:
    return port_reference_errors(action.get("port", 0), f"{path}.port")


def _grpc_errors(action: Obj, path: str) -> list[FieldError]:
    port = action.get("port", 0)
    if 1 <= port <= 65535:
        return []
    return [FieldError.invalid(f"{path}.port", port, "must be between 1 and 65535, inclusive")]


def _sleep_errors(action: Obj, path: str, grace_s: int | None) -> list[FieldError]:
    seconds = action.get("seconds", 0)
    if grace_s is None or 0 <= seconds <= grace_s:
        return []
    return [
        FieldError.invalid(
            path,
            seconds,
            f"must be non-negative and less than terminationGracePeriodSeconds ({grace_s})",
        )
    ]


def port_reference_errors(port: Any, path: str) -> list[FieldError]:
    """Validate a port given by number or by a container port's name."""
    if isinstance(port, str):
        return [FieldError.invalid(path, port, detail) for detail in names.port_name_errors(port)]
    if 1 <= port <= 65535:
        return []
    return [FieldError.invalid(path, port, "must be between 1 and 65535, inclusive")]


_CHECKS = {
    "exec": _exec_errors,
    "httpGet": _http_errors,
    "tcpSocket": _tcp_errors,
    "grpc": _grpc_errors,
}
