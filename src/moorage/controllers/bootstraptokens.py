"""Bootstrap tokens: expired ones are deleted, the others sign the cluster's configuration."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime

import msgspec

from moorage.api.bootstrap_tokens import (
    NAMESPACE,
    SECRET_TYPE,
    expiration,
    is_expired,
    signing_token,
)
from moorage.api.clock import Clock
from moorage.api.configuration import Secret
from moorage.api.errors import ConflictError, NotFoundError
from moorage.controllers.loop import Keys, Loop
from moorage.controllers.requests import locked
from moorage.wire.client.informer import Informer, latest
from moorage.wire.client.resources import CONFIG_MAPS, SECRETS
from moorage.wire.client.rest import Client

# Token cleaner: deletes bootstrap tokens that have expired.
#
# Source: kube-controller-manager `token-cleaner-controller` of Kubernetes 1.36.


def token_cleaner(client: Client, tokens: Informer[Secret], clock: Clock) -> Loop[str]:
    """Return the loop that deletes tokens when their time is over.

    Keys are names of Secrets in `kube-system`. `tokens` is an informer of the bootstrap tokens,
    which the caller runs.
    """

    def kept(before: Secret | None, after: Secret | None) -> Iterator[str]:
        del before
        if after is not None and after.metadata.namespace == NAMESPACE:
            yield after.metadata.name

    async def reconcile(name: str) -> float | None:
        secret = tokens.get(name, NAMESPACE)
        if secret is None or secret.type != SECRET_TYPE:
            return None
        now = clock.now()
        if not is_expired(secret, now):
            end = expiration(secret)
            return None if end is None else (end - now).total_seconds()
        # Gone already, or another of that name, which has an event of its own.
        with suppress(NotFoundError, ConflictError):
            await client.delete(SECRETS, name, NAMESPACE, uid=secret.metadata.uid)
        return None

    return Loop("bootstrap tokens", reconcile, [(tokens, kept)], clock)


# Bootstrap signer: signs ConfigMap `cluster-info` in `kube-public` with each bootstrap token.
#
# A machine that knows a token can so trust the cluster's address and authority in it. There is
# nothing to do without that ConfigMap, which is the administrator's to create. Source:
# kube-controller-manager `bootstrap-signer-controller` of Kubernetes 1.36; RFC 7515 appendix F
# (detached content).

INFO_NAMESPACE, INFO_NAME = "kube-public", "cluster-info"
_CONTENT = "kubeconfig"
_SIGNATURE_PREFIX = "jws-kubeconfig-"
_KEY = ""


def detached_signature(content: str, token_id: str, key: str) -> str:
    """Return a compact JWS of the content without the content."""
    header = _base64url(msgspec.json.encode({"alg": "HS256", "kid": token_id}))
    signed = f"{header}.{_base64url(content.encode())}"
    digest = hmac.digest(key.encode(), signed.encode(), hashlib.sha256)
    return f"{header}..{_base64url(digest)}"


def signatures(content: str, tokens: Iterable[Secret], now: datetime) -> dict[str, str]:
    """Return the signature of each token that signs, by its key in the ConfigMap."""
    pairs = (signing_token(secret, now) for secret in tokens)
    return {
        f"{_SIGNATURE_PREFIX}{pair[0]}": detached_signature(content, *pair)
        for pair in pairs
        if pair is not None
    }


def changes(data: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str | None]:
    """Return the merge patch of the data that leads to exactly the wanted signatures."""
    present = {key: value for key, value in data.items() if key.startswith(_SIGNATURE_PREFIX)}
    removed = dict.fromkeys(present.keys() - wanted.keys())
    added = {key: value for key, value in wanted.items() if present.get(key) != value}
    return {**removed, **added}


def bootstrap_signer(client: Client, tokens: Informer[Secret], clock: Clock) -> Loop[str]:
    """Return the loop that keeps the signatures. It has one key.

    `tokens` is an informer of the bootstrap tokens, which the caller runs.
    """
    infos = Informer(client, CONFIG_MAPS, field_selector=f"metadata.name={INFO_NAME}", clock=clock)

    def changed_in(namespace: str) -> Keys[str]:
        return lambda before, after: (
            [_KEY] if latest(before, after).metadata.namespace == namespace else []
        )

    async def reconcile(key: str) -> None:
        del key
        info = infos.get(INFO_NAME, INFO_NAMESPACE)
        if info is None or _CONTENT not in info.data:
            return
        # A token that expires is deleted by the cleaner, which leads here.
        signing = [secret for secret in tokens if secret.metadata.namespace == NAMESPACE]
        wanted = signatures(info.data[_CONTENT], signing, clock.now())
        data = changes(info.data, wanted)
        if data:
            patch = {"metadata": locked(info.metadata), "data": data}
            with suppress(NotFoundError):  # It was deleted meanwhile.
                await client.patch(CONFIG_MAPS, INFO_NAME, patch, INFO_NAMESPACE)

    return Loop(
        "bootstrap signer", reconcile,
        [(tokens, changed_in(NAMESPACE)), (infos, changed_in(INFO_NAMESPACE))], clock,
        owned=[infos],
    )  # fmt: skip


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
