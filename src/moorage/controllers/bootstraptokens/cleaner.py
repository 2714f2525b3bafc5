"""Token cleaner: deletes bootstrap tokens that have expired.

Source: kube-controller-manager `token-cleaner-controller` of Kubernetes 1.37.
"""

from __future__ import annotations

from moorage.api.bootstrap_tokens import NAMESPACE, SECRET_TYPE, expiration, is_expired
from moorage.api.clock import Clock
from moorage.api.configuration import Secret
from moorage.api.errors import ConflictError, NotFoundError
from moorage.controllers.informers import wait_synced
from moorage.wire.client.informer import Informer
from moorage.wire.client.queue import WorkQueue
from moorage.wire.client.resources import SECRETS
from moorage.wire.client.rest import Client


class TokenCleaner:
    """Deletes tokens when their time is over. Keys are names of Secrets in `kube-system`.

    `tokens` is an informer of the bootstrap tokens, which the caller runs.
    """

    def __init__(self, client: Client, tokens: Informer[Secret], clock: Clock) -> None:
        self._client = client
        self._tokens = tokens
        self._clock = clock
        self._queue: WorkQueue[str] = WorkQueue("bootstrap tokens", clock=clock)
        self._tokens.add_handler(self._token_changed)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await wait_synced(self._tokens)
        await self._queue.run(self._reconcile)

    def _token_changed(self, before: Secret | None, after: Secret | None) -> None:
        del before
        if after is not None and after.metadata.namespace == NAMESPACE:
            self._queue.add(after.metadata.name)

    async def _reconcile(self, name: str) -> float | None:
        secret = self._tokens.get(name, NAMESPACE)
        if secret is None or secret.type != SECRET_TYPE:
            return None
        now = self._clock.now()
        if not is_expired(secret, now):
            end = expiration(secret)
            return None if end is None else (end - now).total_seconds()
        try:
            await self._client.delete(SECRETS, name, NAMESPACE, uid=secret.metadata.uid)
        except (NotFoundError, ConflictError):
            return None  # Gone already, or another of that name, which has an event of its own.
        return None
