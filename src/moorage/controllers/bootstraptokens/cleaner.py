"""Token cleaner: deletes bootstrap tokens that have expired.

Source: kube-controller-manager `token-cleaner-controller` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from moorage.api.bootstrap_tokens import NAMESPACE, SECRET_TYPE, expiration, is_expired
from moorage.api.clock import Clock
from moorage.api.configuration import Secret
from moorage.api.errors import ConflictError, NotFoundError
from moorage.controllers.loop import Loop
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import SECRETS
from moorage.wire.client.rest import Client


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
