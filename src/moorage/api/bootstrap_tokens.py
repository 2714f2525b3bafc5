"""Bootstrap tokens: Secrets in `kube-system` by which new nodes prove that they may ask to join.

Source: API docs "Authenticating with Bootstrap Tokens", `cluster-bootstrap` of Kubernetes 1.36.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from datetime import datetime
from typing import Final

from moorage.api.clock import parse_time
from moorage.api.configuration import Secret

NAMESPACE: Final = "kube-system"
SECRET_TYPE: Final = "bootstrap.kubernetes.io/token"
NAME_PREFIX: Final = "bootstrap-token-"
USER_PREFIX: Final = "system:bootstrap:"
DEFAULT_GROUP: Final = "system:bootstrappers"
AUTHENTICATION: Final = "usage-bootstrap-authentication"
SIGNING: Final = "usage-bootstrap-signing"

_NO_TEXT = "\ufffd"
_ID, _SECRET = "token-id", "token-secret"
_EXPIRATION, _GROUPS = "expiration", "auth-extra-groups"
_TOKEN = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")
_TOKEN_ID = re.compile(r"[a-z0-9]{6}")
_GROUP = re.compile(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]")


def token_id(token: str) -> str | None:
    """Return the public part of a token, None for any other text."""
    match = _TOKEN.fullmatch(token)
    return match.group(1) if match else None


def groups_of(secret: Secret, token: str, now: datetime) -> tuple[str, ...] | None:
    """Return the groups that a token gives by its Secret; None if it is not valid."""
    match = _TOKEN.fullmatch(token)
    if match is None or secret.metadata.deletion_timestamp is not None:
        return None
    is_meant = secret.type == SECRET_TYPE and _text(secret, _ID) == match.group(1)
    is_right = hmac.compare_digest(_text(secret, _SECRET).encode(), match.group(2).encode())
    if not is_meant or not is_right or _text(secret, AUTHENTICATION) != "true":
        return None
    if is_expired(secret, now):
        return None
    extra = _text(secret, _GROUPS)
    groups = extra.split(",") if extra else []
    if not all(_GROUP.fullmatch(group) for group in groups):
        return None
    return tuple(sorted({DEFAULT_GROUP, *groups}))


def signing_token(secret: Secret, now: datetime) -> tuple[str, str] | None:
    """Return id and secret of a token that signs, None for any other Secret."""
    own_id, key = _text(secret, _ID), _text(secret, _SECRET)
    is_named = secret.metadata.name == NAME_PREFIX + own_id and _TOKEN_ID.fullmatch(own_id)
    if not is_named or secret.type != SECRET_TYPE or not key or _NO_TEXT in key:
        return None
    if _text(secret, SIGNING) != "true" or is_expired(secret, now):
        return None
    return own_id, key


def expiration(secret: Secret) -> datetime | None:
    """Return when a token expires, None for never. Raises ValueError for a malformed time."""
    text = _text(secret, _EXPIRATION)
    return parse_time(text) if text else None


def is_expired(secret: Secret, now: datetime) -> bool:
    """Return whether a token has expired; one with a malformed time has."""
    try:
        end = expiration(secret)
    except ValueError:
        return True
    return end is not None and end <= now


def _text(secret: Secret, key: str) -> str:
    """Return a value as text. What is no text is not empty: an expiration of it is malformed."""
    try:
        return base64.b64decode(secret.data.get(key, ""), validate=True).decode(errors="replace")
    except binascii.Error:
        return _NO_TEXT
