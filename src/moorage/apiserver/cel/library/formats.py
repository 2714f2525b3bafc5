"""Named formats: `format.dns1123Label().validate('a')`.

The CEL library takes no optional values from functions: calls of `validate` and `format.named` are
rewritten to optional selections from maps (`construction.py`). Source: API docs "Kubernetes format
library".
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from datetime import date, datetime
from typing import Any
from urllib.parse import urlsplit

from moorage.api import names
from moorage.apiserver.cel.library.declaring import Signature, Type, function, method
from moorage.apiserver.cel.library.opaque import NAMED_FORMAT

_UUID = re.compile(r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:?\d\d)?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

Errors = Callable[[str], list[str]]


def functions() -> list[Signature]:
    """Return the signatures of the library."""
    text, kind = Type.STRING, NAMED_FORMAT.cel
    return [
        *(function(f"format.{name}", [], kind, _constant(name)) for name in _FORMATS),
        function("format.kubernetes_named", [text], Type.Map(text, kind), _named),
        method("kubernetes_validate", [kind, text], Type.Map(text, Type.List(text)), _validate),
    ]


def _constant(name: str) -> Callable[[], Any]:
    return lambda: NAMED_FORMAT(name)


def _named(name: str) -> dict[str, Any]:
    return {"format": NAMED_FORMAT(name)} if name in _FORMATS else {}


def _validate(kind: Any, value: str) -> dict[str, list[str]]:
    errors = _FORMATS[kind.text](value)
    return {"errors": errors} if errors else {}


def _as_prefix(errors: Errors) -> Errors:
    """Return the errors of a text that something follows: it may end in a dash."""

    def check(value: str) -> list[str]:
        return errors(f"{value[:-1]}a" if len(value) > 1 and value.endswith("-") else value)

    return check


def _uri_errors(value: str) -> list[str]:
    def refused(why: str) -> list[str]:
        return [f'parse "{value}": {why}']

    if not value:
        return refused("empty url")
    if _CONTROL.search(value):
        return refused("net/url: invalid control character in URL")
    try:
        parts = urlsplit(value)
        _ = parts.port
    except ValueError as error:
        return refused(str(error))
    if not value.startswith("/") and not (parts.scheme and (parts.netloc or parts.path)):
        return refused("invalid URI for request")
    return []


def _uuid_errors(value: str) -> list[str]:
    return [] if _UUID.fullmatch(value) else ["does not match the UUID format"]


def _byte_errors(value: str) -> list[str]:
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return ["invalid base64"]
    return []


def _date_errors(value: str) -> list[str]:
    try:
        is_date = len(value) == len("2006-01-02") and bool(date.fromisoformat(value))
    except ValueError:
        is_date = False
    return [] if is_date else ["invalid date"]


def _datetime_errors(value: str) -> list[str]:
    try:
        is_time = bool(_DATE_TIME.fullmatch(value)) and bool(datetime.fromisoformat(value.upper()))
    except ValueError:
        is_time = False
    return [] if is_time else ["invalid datetime"]


_FORMATS: dict[str, Errors] = {
    "dns1123Label": names.dns_label_errors,
    "dns1123Subdomain": names.dns_subdomain_errors,
    "dns1035Label": names.dns_1035_label_errors,
    "qualifiedName": names.qualified_name_errors,
    "dns1123LabelPrefix": _as_prefix(names.dns_label_errors),
    "dns1123SubdomainPrefix": _as_prefix(names.dns_subdomain_errors),
    "dns1035LabelPrefix": _as_prefix(names.dns_1035_label_errors),
    "labelValue": names.label_value_errors,
    "uri": _uri_errors,
    "uuid": _uuid_errors,
    "byte": _byte_errors,
    "date": _date_errors,
    "datetime": _datetime_errors,
}
