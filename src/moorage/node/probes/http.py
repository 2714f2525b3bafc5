"""HTTP requests to containers, for probes and hooks.

Certificates are not verified, as no CA issues them for pod addresses; redirects are followed on the
same host only. Source: core/v1 HTTPGetAction, kubelet `probe/http`.
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass
from typing import Self
from urllib.parse import quote, urlsplit

import aiohttp
from yarl import URL

from moorage.api.containers import HTTPGetAction
from moorage.api.release import MAJOR, MINOR
from moorage.node.pod_facts.labels import AnyContainer
from moorage.node.probes.ports import resolve_port
from moorage.wire.streaming.connector import Connector

_BODY_LIMIT = 10 * 1024
_MAX_REDIRECTS = 10
_PATH_SAFE = "/!$&'()*+,;=:@[]"
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


class HttpFailure(Exception):  # noqa: N818 - an answer of a probe, not a fault of this program
    """No response was received."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Response to a probe or hook; the body is cut at 10 KiB."""

    status: int
    body: str

    @property
    def is_redirect(self) -> bool:
        return 300 <= self.status < 400


class HttpClient:
    """HTTP client for containers, with a connection per request as an external client has."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=Connector(ssl=False, force_close=True, limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(
        self,
        action: HTTPGetAction,
        container: AnyContainer,
        address: str,
        *,
        purpose: str,
        timeout_s: float | None,
    ) -> HttpAnswer:
        """Send a GET request and return the response. `purpose` is part of the User-Agent.

        Raises HttpFailure when there is no response, ValueError for an invalid port.
        """
        assert self._session is not None
        url = url_of(action, container, address)
        headers = headers_of(action, purpose)
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        try:
            for _ in range(_MAX_REDIRECTS):
                async with self._session.get(
                    url, headers=headers, timeout=timeout, allow_redirects=False
                ) as response:
                    body = await response.content.read(_BODY_LIMIT)
                    answer = HttpAnswer(response.status, body.decode(errors="replace"))
                    target = response.headers.get("Location", "")
                if not answer.is_redirect or not target:
                    return answer
                following = url.join(URL(target))
                if following.host != url.host:
                    return answer
                url = following
        except TimeoutError as error:
            raise HttpFailure(
                f'Get "{url}": context deadline exceeded '
                "(Client.Timeout exceeded while awaiting headers)"
            ) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise HttpFailure(f'Get "{url}": {_cause(error, url)}') from error
        raise HttpFailure(f'Get "{url}": stopped after {_MAX_REDIRECTS} redirects')


def url_of(action: HTTPGetAction, container: AnyContainer, address: str) -> URL:
    """Return the request's URL. Raises ValueError for an invalid port."""
    path, query = _target(action.path or "/")
    scheme, port = (action.scheme or "HTTP").lower(), resolve_port(action.port, container)
    server = URL.build(scheme=scheme, host=action.host or address, port=port)
    return URL.build(
        scheme=scheme,
        authority=server.raw_authority,
        path=path if path.startswith("/") else f"/{path}",
        query_string=query,
        encoded=True,
    )


def _target(path: str) -> tuple[str, str]:
    """Return path and query in their encoded form; existing escapes are kept.

    A percent sign in the path that begins no escape makes all of it a path, as the kubelet does
    with what Go's `url.Parse` refuses. Source: kubelet `probe/http` formatURL.
    """
    parts = urlsplit(path)
    if _BAD_ESCAPE.search(parts.path):
        return quote(path, safe=_PATH_SAFE), ""
    return quote(parts.path, safe=_PATH_SAFE + "%"), quote(parts.query, safe=string.punctuation)


def headers_of(action: HTTPGetAction, purpose: str) -> list[tuple[str, str]]:
    """Return the request's headers; an Accept header with an empty value is omitted."""
    headers = [(header.name, header.value) for header in action.http_headers]
    given = {name.lower(): value for name, value in headers}
    if "user-agent" not in given:
        headers.append(("User-Agent", f"kube-{purpose}/{MAJOR}.{MINOR}"))
    if "accept" not in given:
        headers.append(("Accept", "*/*"))
    return [(name, value) for name, value in headers if name.lower() != "accept" or value]


def _cause(error: Exception, url: URL) -> str:
    """Return the error's message, for a refused connection as a Go client prints it."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, ConnectionRefusedError):
            return f"dial tcp {url.host}:{url.port}: connect: connection refused"
        inner = getattr(inner, "os_error", None) or inner.__cause__
    return str(error) or type(error).__name__
