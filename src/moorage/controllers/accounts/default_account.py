"""Service account `default` in every active namespace.

Source: API docs "Default service accounts".
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.clock import Clock
from moorage.api.errors import AlreadyExistsError, StatusError
from moorage.api.names import Namespace
from moorage.controllers.informers import Informers
from moorage.controllers.loop import Loop, key_if_present
from moorage.controllers.objects import SERVICE_ACCOUNTS
from moorage.controllers.requests import is_namespace_ending
from moorage.wire.client.resources import PartialObject
from moorage.wire.client.rest import Client

DEFAULT = "default"


def is_open(namespace: Namespace | None) -> bool:
    """Return whether the namespace exists and is not being deleted."""
    return namespace is not None and namespace.metadata.deletion_timestamp is None


def default_accounts(client: Client, informers: Informers, clock: Clock) -> Loop[str]:
    """Return the loop that creates the default service account. Keys are namespaces."""
    namespaces, accounts = informers.namespaces, informers.service_accounts

    def removed(before: PartialObject | None, after: PartialObject | None) -> Iterator[str]:
        if before is not None and after is None and before.metadata.name == DEFAULT:
            yield before.metadata.namespace

    async def reconcile(name: str) -> None:
        if not is_open(namespaces.get(name)) or accounts.get(DEFAULT, name) is not None:
            return
        account = {"metadata": {"name": DEFAULT, "namespace": name}}
        try:
            await client.create(SERVICE_ACCOUNTS, account, name)
        except AlreadyExistsError:
            return  # Our copy did not have it yet.
        except StatusError as error:
            if not is_namespace_ending(error):
                raise

    return Loop(
        "default service accounts", reconcile,
        [(namespaces, key_if_present), (accounts, removed)], clock,
    )  # fmt: skip
