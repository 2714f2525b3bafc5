"""Doors of the page: who may look, and with whose credentials the API is read.

    KeyDoor     on the user's machine: the address has a key that only its user knows, and the
                API is read with the user's kubeconfig
    TokenDoor   in a cluster: each request has the viewer's own token, with which the API is read
                and which is not kept

Neither has rights of its own. An API server that proxies to a Service or pod takes credentials out
of a request, so that a TokenDoor must be reached by port-forward or a proxy that passes them.
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Protocol, TypeVar

import msgspec

from moorage.api.errors import ForbiddenError, NotFoundError, TooLargeError, UnauthorizedError
from moorage.api.meta import Object
from moorage.wire.client.config import ClientConfig
from moorage.wire.client.resources import Resource
from moorage.wire.client.rest import Client

# API reader: reads objects from an API server, with the credentials of its client.
#
# A page of a list has at most `MOST_PAGE_BYTES`, whatever users put into their objects, so that a
# page of the site holds one of these at a time, and what it shows.

T = TypeVar("T", bound=Object)

MOST_OBJECTS = 200_000
"""Limit on the objects of one list; Kubernetes is made for 150,000 pods."""

MOST_PAGE_BYTES = 8 * 1024 * 1024
"""Limit on the bytes of a page of a list, and of an object. API servers store up to 1.5 MiB of one,
which JSON may make longer."""


class ReadLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on the objects of one list, and on the bytes of a page of a list."""

    objects: int = MOST_OBJECTS
    page_bytes: int = MOST_PAGE_BYTES


class ApiReader:
    """Reads with one client, whose identity is that of the user who looks."""

    def __init__(self, client: Client, limits: ReadLimits | None = None) -> None:
        self._client = client
        self._limits = limits or ReadLimits()

    async def visit(
        self,
        resource: Resource[T],
        take: Callable[[T], None],
        namespace: str | None = None,
        *,
        field_selector: str = "",
    ) -> None:
        """Call `take` with each object of a namespace, or of all, by namespace and name.

        Raises TooLargeError for more than the limit, and as `Client.pages` does.
        """
        count = 0
        async for page in self._client.pages(
            resource, namespace, field_selector=field_selector, most_bytes=self._limits.page_bytes
        ):
            count += len(page.items)
            most = self._limits.objects
            if count > most:
                raise TooLargeError(f"the page reads at most {most} {resource.plural}")
            for item in page.items:
                take(item)

    async def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        """Return an object. Raises as `Client.get` does."""
        return await self._client.get(resource, name, namespace)


# Reader seam: reads objects with the rights of the user who looks at the page.


class Reader(Protocol):
    """Reads objects on behalf of one user."""

    async def visit(
        self,
        resource: Resource[T],
        take: Callable[[T], None],
        namespace: str | None = None,
        *,
        field_selector: str = "",
    ) -> None:
        """Call `take` with each object of a namespace, or of all; none is kept here.

        Raises ForbiddenError where the user may not list them, NotFoundError where the server has
        no such resource.
        """

    async def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        """Return an object. Raises ForbiddenError, NotFoundError."""


ROOT = "/ui"
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""Source: RFC 6750 §2.1, `b64token`."""
_LOOPBACK = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
_USER_AGENT = "moorage-ui"
NO_TOKEN = """\
The page shows what you may read, so it needs your token.

  kubectl port-forward -n NAMESPACE service/moorage-ui 8080:80
  open http://127.0.0.1:8080/ui/    any user name, and as password a token, such as of
                                    kubectl create token ACCOUNT

Where the page has a certificate, the ports are 8443:443, and the address begins with https.
Through kubectl proxy it cannot be seen: API servers take credentials out of what they pass on.
With the credentials of a kubeconfig, run `moor ui` on your own machine."""


class Visit(msgspec.Struct, frozen=True):
    """A request as far as it decides who looks: its path and two of its headers."""

    path: str
    host: str = ""
    authorization: str = ""


class Door(Protocol):
    """Lets visitors in."""

    challenge: str
    """WWW-Authenticate of an answer 401; empty where the visitor cannot give credentials."""

    def path_of(self, visit: Visit) -> str:
        """Return the path below the page's root, `""` for the root without its slash.

        Raises NotFoundError, ForbiddenError for what is not let in.
        """

    def reader(self, visit: Visit) -> AbstractAsyncContextManager[Reader]:
        """Return the visitor's Reader, once entered. Raises UnauthorizedError without one."""


class KeyDoor:
    """Door on loopback for one user, whose client it uses.

    The key in the path keeps out other local users, and pages of other sites, which do
    not know it. The check of the Host header keeps out sites whose name an attacker makes
    resolve to loopback (DNS rebinding).
    """

    challenge = ""

    def __init__(self, client: Client, key: str) -> None:
        self._reader = ApiReader(client)
        self._key = key

    def path_of(self, visit: Visit) -> str:
        """Return the path below `/KEY/ui`. Raises NotFoundError, ForbiddenError."""
        if not _LOOPBACK.fullmatch(visit.host):
            raise ForbiddenError("the page is for this machine alone: use a loopback address")
        _, _, rest = visit.path.partition("/")
        key, _, path = rest.partition("/")
        if not hmac.compare_digest(key.encode(), self._key.encode()):
            raise NotFoundError("the address needs the key that moor ui printed")
        return _below_root(f"/{path}")

    @asynccontextmanager
    async def reader(self, visit: Visit) -> AsyncIterator[Reader]:
        """Yield the reader of the user."""
        del visit
        yield self._reader


class TokenDoor:
    """Door in a cluster: `config` names the API server, and has no credentials."""

    challenge = 'Basic realm="a token of this cluster as password", charset="UTF-8"'

    def __init__(self, config: ClientConfig, limits: ReadLimits | None = None) -> None:
        self._config = config
        self._limits = limits

    def path_of(self, visit: Visit) -> str:
        """Return the path below `/ui`. Raises NotFoundError."""
        return _below_root(visit.path)

    def reader(self, visit: Visit) -> AbstractAsyncContextManager[Reader]:
        """Return a reader with the request's token. Raises UnauthorizedError without one."""
        token = token_of(visit.authorization)
        if token is None:
            raise UnauthorizedError(NO_TOKEN)
        return self._reader_with(token)

    @asynccontextmanager
    async def _reader_with(self, token: str) -> AsyncIterator[Reader]:
        async with Client(replace(self._config, token=token), user_agent=_USER_AGENT) as client:
            yield ApiReader(client, self._limits)


def token_of(authorization: str) -> str | None:
    """Return the token of an Authorization header, None without one.

    It is a bearer token (RFC 6750), or the password of basic authentication (RFC 7617), for
    which browsers ask.
    """
    scheme, _, value = authorization.strip().partition(" ")
    token = value.strip()
    if scheme.lower() == "basic":
        try:
            token = base64.b64decode(token, validate=True).decode().partition(":")[2].strip()
        except ValueError:
            # Of what is no base64, no ASCII or, decoded, no UTF-8.
            return None
    elif scheme.lower() != "bearer":
        return None
    return token if _TOKEN.fullmatch(token) else None


def _below_root(path: str) -> str:
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise NotFoundError(f"the page is at {ROOT}/")
    return path.removeprefix(ROOT)
