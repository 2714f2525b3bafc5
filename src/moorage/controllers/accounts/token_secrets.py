"""Secrets of type `kubernetes.io/service-account-token`, filled in for their accounts.

They are no longer created by default, but a user who creates one gets the token, the cluster's CA
and the namespace in it; they are deleted with their account. Source: API docs "Manually create
a long-lived API token for a ServiceAccount".
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator

import msgspec

from moorage.api.clock import Clock
from moorage.api.configuration import ACCOUNT_NAME, ACCOUNT_UID, TYPE, Secret
from moorage.api.errors import NotFoundError
from moorage.controllers.informers import Informers
from moorage.controllers.loop import Loop, key_if_present
from moorage.controllers.objects import SERVICE_ACCOUNTS
from moorage.controllers.requests import locked
from moorage.wire.client.informer import Informer, latest, object_key
from moorage.wire.client.resources import SECRETS, PartialObject
from moorage.wire.client.rest import Client

LONGEST_S = 2**32
"""Longest lifetime that can be requested for a token, about 136 years."""

_ACCOUNT = "account"


def wanted_data(present: dict[str, str], namespace: str, ca: str) -> dict[str, str]:
    """Return the data the secret lacks besides the token, in base64."""
    wanted = {"namespace": _encoded(namespace), "ca.crt": _encoded(ca)}
    return {key: value for key, value in wanted.items() if present.get(key) != value}


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _account_of(secret: Secret) -> str:
    return f"{secret.metadata.namespace}/{secret.metadata.annotations.get(ACCOUNT_NAME, '')}"


class TokenSecretController:
    """Fills in token secrets. Keys are secrets; `ca` is a PEM bundle."""

    def __init__(self, client: Client, informers: Informers, ca: str, clock: Clock) -> None:
        self._client = client
        self._ca = ca
        self._accounts = informers.service_accounts
        self._secrets = Informer(
            client,
            SECRETS,
            field_selector=f"type={TYPE}",
            indexes={_ACCOUNT: _accounts_of},
            clock=clock,
        )
        self.run = Loop(
            "token secrets",
            self._reconcile,
            [(self._secrets, key_if_present), (self._accounts, self._account_changed)],
            clock,
            owned=[self._secrets],
        ).run

    def _account_changed(
        self, before: PartialObject | None, after: PartialObject | None
    ) -> Iterator[str]:
        either = latest(before, after)
        if before is None or after is None or before.metadata.uid != after.metadata.uid:
            for secret in self._secrets.by_index(_ACCOUNT, object_key(either.metadata)):
                yield object_key(secret.metadata)

    async def _reconcile(self, key: str) -> float | None:
        secret = self._secrets.get_key(key)
        if secret is None or secret.metadata.deletion_timestamp is not None:
            return None
        if not secret.metadata.annotations.get(ACCOUNT_NAME):
            return None
        account = await self._account(secret)
        if account is None:
            await self._remove(secret)
        else:
            await self._fill(secret, account)
        return None

    async def _account(self, secret: Secret) -> PartialObject | None:
        """Return the secret's account; None if it does not exist.

        Requested live when the cache lacks it, since the secret is deleted without its account.
        """
        account = self._accounts.get_key(_account_of(secret))
        if account is None or not _belongs_to(secret, account):
            name = secret.metadata.annotations.get(ACCOUNT_NAME, "")
            try:
                account = await self._client.get(SERVICE_ACCOUNTS, name, secret.metadata.namespace)
            except NotFoundError:
                return None
        return account if _belongs_to(secret, account) else None

    async def _remove(self, secret: Secret) -> None:
        meta = secret.metadata
        try:
            await self._client.delete(SECRETS, meta.name, meta.namespace, uid=meta.uid)
        except NotFoundError:
            return  # Gone already, as wanted.

    async def _fill(self, secret: Secret, account: PartialObject) -> None:
        meta = secret.metadata
        data = wanted_data(secret.data, meta.namespace, self._ca)
        if not secret.data.get("token"):
            data["token"] = _encoded(await self._token(account, secret))
        if not data and meta.annotations.get(ACCOUNT_UID) == account.metadata.uid:
            return
        annotations = {ACCOUNT_UID: account.metadata.uid}
        patch = {"metadata": {**locked(meta), "annotations": annotations}, "data": data}
        await self._client.patch(SECRETS, meta.name, patch, meta.namespace)

    async def _token(self, account: PartialObject, secret: Secret) -> str:
        """Return a token that ends with the secret."""
        meta, own = account.metadata, secret.metadata
        body = {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "spec": {
                "expirationSeconds": LONGEST_S,
                "boundObjectRef": {
                    "kind": "Secret",
                    "apiVersion": "v1",
                    "name": own.name,
                    "uid": own.uid,
                },
            },
        }
        path = SERVICE_ACCOUNTS.path(meta.namespace, meta.name, "token")
        answer = await self._client.request("POST", path, body=msgspec.json.encode(body))
        token: str = msgspec.json.decode(answer)["status"]["token"]
        return token


def _accounts_of(secret: Secret) -> Iterable[str]:
    return (_account_of(secret),)


def _belongs_to(secret: Secret, account: PartialObject) -> bool:
    """Return whether the secret was made for this account, not for an earlier one of that name."""
    return secret.metadata.annotations.get(ACCOUNT_UID) in (None, "", account.metadata.uid)
