"""Service account `default` in every active namespace.

Source: API docs "Default service accounts".
"""

from __future__ import annotations

from moorage.api.clock import Clock
from moorage.api.errors import AlreadyExistsError, StatusError
from moorage.api.namespaces import Namespace
from moorage.controllers.informers import Informers, wait_synced
from moorage.controllers.objects import SERVICE_ACCOUNTS
from moorage.controllers.refusals import is_namespace_ending
from moorage.wire.client.queue import WorkQueue
from moorage.wire.client.resources import PartialObject
from moorage.wire.client.rest import Client

DEFAULT = "default"


def is_open(namespace: Namespace | None) -> bool:
    """Return whether the namespace exists and is not being deleted."""
    return namespace is not None and namespace.metadata.deletion_timestamp is None


class DefaultAccountController:
    """Creates the default service account. Keys are namespaces."""

    def __init__(self, client: Client, informers: Informers, clock: Clock) -> None:
        self._client = client
        self._namespaces = informers.namespaces
        self._accounts = informers.service_accounts
        self._queue: WorkQueue[str] = WorkQueue("default service accounts", clock=clock)
        self._namespaces.add_handler(self._namespace_changed)
        self._accounts.add_handler(self._account_changed)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await wait_synced(self._namespaces, self._accounts)
        await self._queue.run(self._reconcile)

    def _namespace_changed(self, before: Namespace | None, after: Namespace | None) -> None:
        del before
        if after is not None:
            self._queue.add(after.metadata.name)

    def _account_changed(self, before: PartialObject | None, after: PartialObject | None) -> None:
        if before is not None and after is None and before.metadata.name == DEFAULT:
            self._queue.add(before.metadata.namespace)

    async def _reconcile(self, name: str) -> float | None:
        if not is_open(self._namespaces.get(name)) or self._accounts.get(DEFAULT, name) is not None:
            return None
        account = {"metadata": {"name": DEFAULT, "namespace": name}}
        try:
            await self._client.create(SERVICE_ACCOUNTS, account, name)
        except AlreadyExistsError:
            return None  # Our copy did not have it yet.
        except StatusError as error:
            if not is_namespace_ending(error):
                raise
        return None
