"""Request authenticator: resolves credentials to a user, with a short-lived cache.

Order: bearer token, then client certificate, then anonymous. An invalid bearer token
fails the request even with a valid certificate. Source: apiserver `authentication/request/union`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Callable, Mapping

import msgspec

from moorage.api.bootstrap_tokens import NAME_PREFIX, USER_PREFIX, groups_of, token_id
from moorage.api.clock import Clock
from moorage.api.configuration import Secret
from moorage.api.errors import UnauthorizedError
from moorage.apiserver.authentication.certificates import user_of_certificate
from moorage.apiserver.authentication.service_accounts import TokenVerifier
from moorage.apiserver.registry.request import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User

# Authentication by bootstrap tokens. Source: apiserver `token/bootstrap` of Kubernetes 1.36.


class BootstrapTokens:
    """Resolves tokens. `find_secret(name)` returns a Secret of `kube-system`, or None."""

    def __init__(self, find_secret: Callable[[str], Secret | None], clock: Clock) -> None:
        self._find_secret = find_secret
        self._clock = clock

    def user_of(self, token: str) -> User | None:
        """Return the user of a token, None if it is no valid bootstrap token."""
        own_id = token_id(token)
        secret = None if own_id is None else self._find_secret(NAME_PREFIX + own_id)
        groups = None if secret is None else groups_of(secret, token, self._clock.now())
        if groups is None:
            return None
        return User(name=f"{USER_PREFIX}{own_id}", groups=(*groups, AUTHENTICATED))


_REMEMBERED = 4096
_REMEMBER_S = 10.0
_WEBSOCKET_PREFIX = "base64url.bearer.authorization.k8s.io."

_ANONYMOUS_USER = User(name=ANONYMOUS, groups=(UNAUTHENTICATED,))


class StaticToken(msgspec.Struct, frozen=True):
    """A token that stands for a user for as long as the server runs."""

    token: str
    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""


class Authenticator:
    """Authenticates requests."""

    def __init__(
        self,
        *,
        static_tokens: tuple[StaticToken, ...],
        verifier: TokenVerifier,
        bootstrap_tokens: BootstrapTokens,
        allows_anonymous: bool,
        clock: Clock,
        remembers: int = _REMEMBERED,
    ) -> None:
        self._remembers = remembers
        # Kept as digests: lookup time does not depend on how many characters match.
        self._static = {
            _digest(entry.token): User(
                name=entry.user, uid=entry.uid, groups=(*entry.groups, AUTHENTICATED)
            )
            for entry in static_tokens
        }
        self._verifier = verifier
        self._bootstrap_tokens = bootstrap_tokens
        self._allows_anonymous = allows_anonymous
        self._clock = clock
        self._verified: OrderedDict[str, tuple[float, User]] = OrderedDict()
        self._certificates: OrderedDict[bytes, User | None] = OrderedDict()

    def authenticate(
        self, headers: Mapping[str, str], peer_certificate: bytes | None, token: str | None = None
    ) -> User:
        """Return the user. `token` is one sent outside the Authorization header.

        Raises UnauthorizedError.
        """
        return self.identify(token or _bearer(headers.get("Authorization", "")), peer_certificate)

    def identify(self, token: str | None, peer_certificate: bytes | None) -> User:
        """Return the user of a token or a certificate. Raises UnauthorizedError."""
        if token is not None:
            return self._user_of_token(token)
        if peer_certificate is not None:
            user = self._user_of_certificate(peer_certificate)
            if user is not None:
                return user
        if self._allows_anonymous:
            return _ANONYMOUS_USER
        raise UnauthorizedError

    def user_of_token(
        self, token: str, audiences: tuple[str, ...] | None = None
    ) -> tuple[User, tuple[str, ...]] | None:
        """Return the user and the matching audiences, uncached, for TokenReview."""
        if not token.isascii():
            return None
        static = self._static.get(_digest(token))
        if static is not None:
            return static, self._verifier.audiences if audiences is None else audiences
        bootstrapper = self._bootstrap_tokens.user_of(token)
        if bootstrapper is not None:
            own = self._verifier.audiences
            matched = tuple(one for one in own if audiences is None or one in audiences)
            return (bootstrapper, matched) if matched else None
        return self._verifier.verify(token, audiences)

    def _user_of_token(self, token: str) -> User:
        now = self._clock.monotonic()
        known = self._verified.get(token)
        if known is not None and known[0] > now:
            return known[1]
        verified = self.user_of_token(token)
        if verified is None:
            raise UnauthorizedError
        self._verified[token] = (now + _REMEMBER_S, verified[0])
        _trim(self._verified, self._remembers)
        return verified[0]

    def _user_of_certificate(self, der: bytes) -> User | None:
        if der not in self._certificates:
            self._certificates[der] = user_of_certificate(der)
            _trim(self._certificates, self._remembers)
        return self._certificates[der]


def presented_token(headers: Mapping[str, str]) -> str | None:
    """Return the token that the headers present, None without one. Raises UnauthorizedError."""
    return websocket_token(headers) or _bearer(headers.get("Authorization", ""))


def websocket_token(headers: Mapping[str, str]) -> str | None:
    """Return the bearer token of a subprotocol, the only way browsers can send one."""
    protocols = headers.get("Sec-WebSocket-Protocol")
    if protocols is None:
        return None
    for offered in protocols.split(","):
        protocol = offered.strip()
        if protocol.startswith(_WEBSOCKET_PREFIX):
            return _decoded(protocol.removeprefix(_WEBSOCKET_PREFIX))
    return None


def _decoded(encoded: str) -> str:
    """Decode a token in unpadded base64url. Raises UnauthorizedError, for an empty one too."""
    padded = encoded + "=" * (-len(encoded) % 4)
    try:
        token = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except ValueError as error:
        raise UnauthorizedError from error
    if not token:
        raise UnauthorizedError
    return token


def _bearer(header: str) -> str | None:
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer":
        return None
    return token.strip() or None


def _digest(token: str) -> bytes:
    return hmac.digest(b"moorage static token", token.encode(), hashlib.sha256)


def _trim(
    remembered: OrderedDict[bytes, User | None] | OrderedDict[str, tuple[float, User]],
    most: int,
) -> None:
    while len(remembered) > most:
        remembered.popitem(last=False)
