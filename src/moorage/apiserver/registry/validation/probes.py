"""Probe and lifecycle hook validation.

Source: core validation `validateProbe`, `validateHandler`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.declare.rules import (
    at_least,
    between,
    each,
    invalid,
    not_negative,
    one_of,
    or_else,
    part,
    required,
    satisfies,
)
from moorage.apiserver.registry.kind import Obj

_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_COUNTS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold",
           "failureThreshold")  # fmt: skip
_HEADER = re.compile(r"[-A-Za-z0-9]+")
_HEADER_MESSAGE = (
    "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', "
    "regex used for validation is '[-A-Za-z0-9]+')"
)


def probe_errors(probe: Obj, path: str, *, is_readiness: bool) -> list[FieldError]:
    """Validate a probe. Only a readiness probe may have a successThreshold above 1."""
    return (_readiness_errors if is_readiness else _liveness_errors)(probe, path)


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


def _header_errors(header: Obj, path: str) -> Iterator[FieldError]:
    name = header.get("name", "")
    if not _HEADER.fullmatch(name):
        yield FieldError.invalid(path, name, _HEADER_MESSAGE)


_port_number = between(1, 65535, "must be between 1 and 65535, inclusive")
_CHECKS = {
    "exec": part(("command", required)),
    "httpGet": part(
        ("path", required),
        ("port", or_else(0, port_reference_errors)),
        ("scheme", or_else("", one_of("HTTP", "HTTPS"))),
        ("httpHeaders", each(_header_errors)),
    ),
    "tcpSocket": part(("port", or_else(0, port_reference_errors))),
    "grpc": part(("port", or_else(0, _port_number))),
}

_PROBE = (("", handler_errors), *((field, not_negative) for field in _COUNTS))
_GRACE = "terminationGracePeriodSeconds"
_readiness_errors = part(*_PROBE, (_GRACE, invalid("must not be set for readinessProbes")))
_liveness_errors = part(
    *_PROBE,
    (_GRACE, at_least(1, "must be greater than 0")),
    ("successThreshold", satisfies(lambda threshold: threshold == 1, "must be 1")),
)
