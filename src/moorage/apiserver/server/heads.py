"""Request heads: what the headers of a request say about its client, parsed once for equal heads.

The headers of a client's requests are nearly always the same, so what they say is kept for the next
request with the same bytes. Hot path: one dictionary lookup per request (bench/requests.py).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from aiohttp import web

from moorage.api.errors import BadRequestError
from moorage.apiserver.authentication.authenticator import presented_token
from moorage.apiserver.authentication.impersonation import has_impersonation

_RawHead = tuple[tuple[bytes, bytes], ...]
_KEPT = 1024
_LONGEST_BYTES = 2048
_SYSTEM_CLIENTS = frozenset(
    {"kube-apiserver", "kube-controller-manager", "kube-scheduler", "cluster-policy-controller"}
)
# Source: `isPrettyPrint`: terminals and browsers.
_PEOPLE = ("curl", "Wget", "Mozilla/5.0")


class RequestHead(msgspec.Struct, frozen=True):
    """What headers say. `token` is the bearer token, None without one."""

    token: str | None
    accept: str
    user_agent: str
    is_impersonating: bool

    @property
    def system_client(self) -> str:
        """Return the control plane's part that sent the request; "" for other clients.

        Source: the label `system_client` of `apiserver_request_total`.
        """
        name, slash, _ = self.user_agent.partition("/")
        return name if slash and name in _SYSTEM_CLIENTS else ""

    @property
    def is_of_people(self) -> bool:
        """Return whether people read the answers: they are indented."""
        return self.user_agent.startswith(_PEOPLE)


class RequestHeads:
    """Parses heads and keeps the last ones."""

    def __init__(self, most: int = _KEPT) -> None:
        self._most = most
        self._kept: dict[_RawHead, RequestHead] = {}

    @property
    def kept(self) -> int:
        """Return how many are kept."""
        return len(self._kept)

    def of(self, http: web.BaseRequest) -> RequestHead:
        """Return a request's parsed headers.

        Raises BadRequestError for text that is not UTF-8, UnauthorizedError for a token that
        cannot be decoded.
        """
        raw: _RawHead = http.raw_headers
        head = self._kept.get(raw)
        if head is None:
            _check_headers(http.headers)
            head = RequestHead(
                token=presented_token(http.headers),
                accept=http.headers.get("Accept", ""),
                user_agent=http.headers.get("User-Agent", ""),
                is_impersonating=has_impersonation(http.headers),
            )
            if sum([len(name) + len(value) for name, value in raw]) <= _LONGEST_BYTES:
                if len(self._kept) >= self._most:
                    self._kept.clear()
                self._kept[raw] = head
        return head


def check_text(http: web.BaseRequest) -> None:
    """Raise BadRequestError for a path or query that is not UTF-8.

    The HTTP library passes such bytes as lone surrogates.
    """
    if not (_is_utf8(http.path) and _is_utf8(http.query_string)):
        raise BadRequestError("the request's path and query must be UTF-8")


def _check_headers(headers: Mapping[str, str]) -> None:
    """Raise BadRequestError for values that are not UTF-8.

    A User-Agent may contain any bytes, as upstream.
    """
    for name, value in headers.items():
        if not _is_utf8(value) and name.lower() != "user-agent":
            raise BadRequestError("the values of the request's headers must be UTF-8")


def _is_utf8(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
