"""Service account tokens: issued for TokenRequest, verified on every use.

A token is a JWT signed by the cluster; it is invalid once the account, pod, secret or node it is
bound to is deleted. Keys are P-256, so the algorithm is ES256 (Kubernetes defaults to RSA and
accepts both). Source: KEP-1205, API docs "Managing Service Accounts".
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from moorage.api.clock import Clock
from moorage.apiserver.authentication.certificates import CREDENTIAL_ID
from moorage.apiserver.registry.request import AUTHENTICATED, User

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

ALGORITHM = "ES256"
SERVICE_ACCOUNTS_GROUP = "system:serviceaccounts"
_CLAIM = "kubernetes.io"
# Requested by the standard token volume; such tokens are valid for a year, so that clients that do
# not reload the file keep working, and cause a warning after the requested time.
_VOLUME_SECONDS = 3607
_YEAR_SECONDS = 365 * 24 * 3600
_COORDINATE_BYTES = 32

_LEGACY_ISSUER = "kubernetes/serviceaccount"
_LEGACY_CLAIM = f"{_CLAIM}/serviceaccount"

FindUid = Callable[[str, str, str], str | None]
"""(plural, namespace, name) → the UID of the present object, or None."""
IsSecretUsable = Callable[[str, str], bool]
"""(namespace, name) → whether the token in a Secret may be used; it is noted that it is."""
FindToken = Callable[[str, str], str | None]
"""(namespace, name) → the token in a Secret, None without one or if the Secret is to go."""


def service_account_user(namespace: str, name: str) -> str:
    return f"system:serviceaccount:{namespace}:{name}"


def service_account_groups(namespace: str) -> tuple[str, ...]:
    return (SERVICE_ACCOUNTS_GROUP, f"{SERVICE_ACCOUNTS_GROUP}:{namespace}")


class BoundObject(msgspec.Struct, frozen=True):
    """Object that a token is bound to: `pod`, `secret` or `node`."""

    kind: str
    name: str
    uid: str


class IssuedToken(msgspec.Struct, frozen=True):
    """A token and the time after which its use causes a warning (seconds since 1970)."""

    token: str
    expires: int


class TokenSigner:
    """Issues tokens. `key` is the cluster's private key, `issuer` its URL."""

    def __init__(
        self,
        key: ec.EllipticCurvePrivateKey,
        issuer: str,
        audiences: Sequence[str],
        clock: Clock,
    ) -> None:
        self._key = key
        self.issuer = issuer
        self.audiences = tuple(audiences)
        self._clock = clock
        self.key_id = _key_id(key.public_key())

    def issue(
        self,
        namespace: str,
        name: str,
        uid: str,
        *,
        audiences: Sequence[str],
        seconds: int,
        bound: Sequence[BoundObject] = (),
    ) -> IssuedToken:
        """Issue a token of an account for the given audiences and lifetime."""
        import jwt

        now = int(self._clock.now().timestamp())
        claims: dict[str, Any] = {
            "namespace": namespace,
            "serviceaccount": {"name": name, "uid": uid},
            **{item.kind: {"name": item.name, "uid": item.uid} for item in bound},
        }
        lifetime = seconds
        is_of_pod = any(item.kind == "pod" for item in bound)
        is_for_api = set(self.audiences).issuperset(audiences)
        if seconds == _VOLUME_SECONDS and is_of_pod and is_for_api:
            lifetime = _YEAR_SECONDS
            claims["warnafter"] = now + seconds
        payload = {
            "aud": list(audiences),
            "exp": now + lifetime,
            "iat": now,
            "iss": self.issuer,
            "jti": str(uuid.uuid4()),
            _CLAIM: claims,
            "nbf": now,
            "sub": service_account_user(namespace, name),
        }
        token = jwt.encode(payload, self._key, ALGORITHM, headers={"kid": self.key_id})
        return IssuedToken(token, now + seconds)

    def key_set(self) -> dict[str, Any]:
        """Return the JSON Web Key Set that verifies the tokens."""
        numbers = self._key.public_key().public_numbers()
        key = {
            "use": "sig",
            "kty": "EC",
            "kid": self.key_id,
            "crv": "P-256",
            "alg": ALGORITHM,
            "x": _coordinate(numbers.x),
            "y": _coordinate(numbers.y),
        }
        return {"keys": [key]}

    @property
    def public_key(self) -> ec.EllipticCurvePublicKey:
        return self._key.public_key()


class TokenVerifier:
    """Verifies tokens against the key, the clock and the existing objects."""

    def __init__(
        self,
        key: ec.EllipticCurvePublicKey,
        issuer: str,
        audiences: Sequence[str],
        find_uid: FindUid,
        clock: Clock,
        is_secret_usable: IsSecretUsable = lambda *_: True,
        find_token: FindToken = lambda *_: None,
    ) -> None:
        self._is_secret_usable = is_secret_usable
        self._find_token = find_token
        self._key = key
        self._issuer = issuer
        self.audiences = tuple(audiences)
        self._find_uid = find_uid
        self._clock = clock

    def verify(
        self, token: str, audiences: Sequence[str] | None = None
    ) -> tuple[User, tuple[str, ...]] | None:
        """Return the user of the account and the matching audiences; None for an invalid token.

        `audiences` are those of the verifier; by default the API's own.
        """
        claims = self._claims(token) if token.isascii() else None
        if claims is None or not self._is_alive(claims):
            return None
        accepted = self.audiences if audiences is None else tuple(audiences)
        matched = tuple(audience for audience in accepted if audience in claims.get("aud", ()))
        if not matched:
            return None
        about = claims[_CLAIM]
        if "secret" in about and not self._is_secret_usable(
            about.get("namespace", ""), about["secret"].get("name", "")
        ):
            return None
        return _user(claims), matched

    def _claims(self, token: str) -> Mapping[str, Any] | None:
        # Imported at the first token: with its algorithms it takes a tenth of a server's start.
        import jwt

        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                self._key,
                algorithms=[ALGORITHM],
                issuer=[self._issuer, _LEGACY_ISSUER],
                # The clock is injected, so expiry is checked here.
                options={
                    "verify_aud": False, "verify_exp": False, "verify_nbf": False,
                    "verify_iat": False, "require": ["iss", "sub"],
                },
            )  # fmt: skip
        except jwt.InvalidTokenError:
            return None
        now = self._clock.now().timestamp()
        if now >= claims.get("exp", now + 1) or now < claims.get("nbf", now):
            return None
        if claims["iss"] == _LEGACY_ISSUER:
            return self._legacy_claims(token, claims)
        return claims if isinstance(claims.get(_CLAIM), dict) else None

    def _legacy_claims(self, token: str, claims: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return a token of a Secret as claims of today; None if the Secret holds another token."""
        names = ("namespace", "service-account.name", "service-account.uid", "secret.name")
        namespace, account, uid, secret = (
            claims.get(f"{_LEGACY_CLAIM}/{name}", "") for name in names
        )
        if not all(isinstance(text, str) and text for text in (namespace, account, uid, secret)):
            return None
        if claims["sub"] != service_account_user(namespace, account):
            return None
        present = self._find_token(namespace, secret)
        if present is None or not hmac.compare_digest(present.encode(), token.encode()):
            return None
        about = {
            "namespace": namespace,
            "serviceaccount": {"name": account, "uid": uid},
            # The comparison above has shown that it is this Secret, whatever its UID.
            "secret": {"name": secret, "uid": self._find_uid("secrets", namespace, secret)},
        }
        return {"aud": self.audiences, _CLAIM: about}

    def _is_alive(self, claims: Mapping[str, Any]) -> bool:
        about = claims[_CLAIM]
        namespace = about.get("namespace", "")
        account = about.get("serviceaccount") or {}
        bindings = [("serviceaccounts", namespace, account)]
        bindings += [
            (plural, "" if plural == "nodes" else namespace, about[kind])
            for kind, plural in (("pod", "pods"), ("secret", "secrets"), ("node", "nodes"))
            # A pod's token names the node too, but only the pod's deletion invalidates it.
            if kind in about and not (kind == "node" and "pod" in about)
        ]
        return all(
            bool(reference.get("uid"))
            and self._find_uid(plural, where, reference.get("name", "")) == reference["uid"]
            for plural, where, reference in bindings
        )


def _user(claims: Mapping[str, Any]) -> User:
    about = claims[_CLAIM]
    namespace, account = about["namespace"], about["serviceaccount"]
    extra: dict[str, tuple[str, ...]] = {}
    if "jti" in claims:
        extra[CREDENTIAL_ID] = (f"JTI={claims['jti']}",)
    for kind in ("node", "pod"):
        if kind in about:
            extra[f"authentication.kubernetes.io/{kind}-name"] = (about[kind]["name"],)
            extra[f"authentication.kubernetes.io/{kind}-uid"] = (about[kind].get("uid", ""),)
    return User(
        name=service_account_user(namespace, account["name"]),
        uid=account["uid"],
        groups=(*service_account_groups(namespace), AUTHENTICATED),
        extra=extra,
    )


def _key_id(key: ec.EllipticCurvePublicKey) -> str:
    from cryptography.hazmat.primitives import serialization

    der = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return base64.urlsafe_b64encode(hashlib.sha256(der).digest()).rstrip(b"=").decode()


def _coordinate(number: int) -> str:
    raw = number.to_bytes(_COORDINATE_BYTES, "big")
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
