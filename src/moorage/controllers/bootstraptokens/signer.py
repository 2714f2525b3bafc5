"""Bootstrap signer: signs ConfigMap `cluster-info` in `kube-public` with each bootstrap token.

A machine that knows a token can so trust the cluster's address and authority in it. There is
nothing to do without that ConfigMap, which is the administrator's to create. Source:
kube-controller-manager `bootstrap-signer-controller` of Kubernetes 1.36; RFC 7515 appendix F
(detached content).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime

import msgspec

from moorage.api.bootstrap_tokens import NAMESPACE, signing_token
from moorage.api.clock import Clock
from moorage.api.configuration import Secret
from moorage.api.errors import NotFoundError
from moorage.controllers.loop import Keys, Loop, latest
from moorage.controllers.patches import locked
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import CONFIG_MAPS
from moorage.wire.client.rest import Client

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
