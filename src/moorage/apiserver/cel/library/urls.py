"""URLs: absolute URIs and absolute paths. Source: API docs "Kubernetes URL library"."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, urlsplit

from moorage.apiserver.cel.library.declaring import Signature, Type, function, holds, method
from moorage.apiserver.cel.library.opaque import URL

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SAFE_IN_PATH = "/:@!$&'()*+,;=~%-._"


def functions() -> list[Signature]:
    """Return the signatures of the library."""
    url, text = URL.cel, Type.STRING
    return [
        function("url", [text], url, _parse),
        function("isURL", [text], Type.BOOL, holds(_split)),
        method("getScheme", [url], text, lambda value: _split(value.text).scheme),
        method("getHost", [url], text, lambda value: _host(_split(value.text))),
        method("getHostname", [url], text, lambda value: _hostname(_split(value.text))),
        method("getPort", [url], text, lambda value: _port(_split(value.text))),
        method("getEscapedPath", [url], text, lambda value: _escaped_path(_split(value.text))),
        method(
            "getQuery",
            [url],
            Type.Map(text, Type.List(text)),
            lambda value: _query(_split(value.text)),
        ),
    ]


def _parse(text: str) -> Any:
    _split(text)
    return URL(text)


def _split(text: str) -> SplitResult:
    """Split an absolute URI or an absolute path. Raises ValueError for others."""
    if _CONTROL.search(text):
        raise ValueError("URL parse error during conversion from string: invalid control character")
    parts = urlsplit(text)
    is_absolute_uri = bool(parts.scheme) and bool(parts.netloc or parts.path)
    if not is_absolute_uri and not text.startswith("/"):
        raise ValueError(
            f'URL parse error during conversion from string: parse "{text}": '
            "invalid URI for request"
        )
    # Raises ValueError for a port that is not a number.
    _ = parts.port
    if parts.netloc.count(":") > 1 and "[" not in parts.netloc and "@" not in parts.netloc:
        raise ValueError(f'URL parse error during conversion from string: parse "{text}"')
    return parts


def _host(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def _hostname(parts: SplitResult) -> str:
    host = _host(parts)
    if host.startswith("["):
        return host[1 : host.index("]")]
    return host.partition(":")[0]


def _port(parts: SplitResult) -> str:
    return "" if parts.port is None else _host(parts).rpartition(":")[2]


def _escaped_path(parts: SplitResult) -> str:
    return quote(parts.path, safe=_SAFE_IN_PATH)


def _query(parts: SplitResult) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        values.setdefault(key, []).append(value)
    return values
