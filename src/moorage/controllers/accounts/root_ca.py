"""Root CA publisher: the ConfigMap `kube-root-ca.crt` in every active namespace.

Pods verify the API server with it; the token volume of every pod mounts it. Source: KEP-1205,
`RootCACertPublisher`.
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.clock import Clock
from moorage.api.configuration import ConfigMap
from moorage.api.errors import NotFoundError, StatusError
from moorage.controllers.accounts.default_account import is_open
from moorage.controllers.informers import Informers
from moorage.controllers.loop import Loop, key_if_present
from moorage.controllers.requests import is_namespace_ending
from moorage.wire.client.informer import Informer, latest
from moorage.wire.client.resources import CONFIG_MAPS
from moorage.wire.client.rest import Client

NAME = "kube-root-ca.crt"
KEY = "ca.crt"
DESCRIPTION_ANNOTATION = "kubernetes.io/description"
DESCRIPTION = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal "
    "endpoints such as the internal service IP or kubernetes.default.svc. No other usage is "
    "guaranteed across distributions of Kubernetes clusters."
)


class RootCaController:
    """Creates and restores the ConfigMap. Keys are namespaces; `ca` is a PEM bundle."""

    def __init__(self, client: Client, informers: Informers, ca: str, clock: Clock) -> None:
        self._client = client
        self._ca = ca
        self._namespaces = informers.namespaces
        self._maps = Informer(
            client, CONFIG_MAPS, field_selector=f"metadata.name={NAME}", clock=clock
        )
        self.run = Loop(
            "root ca",
            self._reconcile,
            [(self._namespaces, key_if_present), (self._maps, self._map_changed)],
            clock,
            owned=[self._maps],
        ).run

    def _map_changed(self, before: ConfigMap | None, after: ConfigMap | None) -> Iterator[str]:
        yield latest(before, after).metadata.namespace

    async def _reconcile(self, name: str) -> float | None:
        if not is_open(self._namespaces.get(name)):
            return None
        present = self._maps.get(NAME, name)
        if present is None:
            await self._create(name)
        elif not self._is_as_wanted(present):
            await self._restore(present)
        return None

    def _is_as_wanted(self, present: ConfigMap) -> bool:
        description = present.metadata.annotations.get(DESCRIPTION_ANNOTATION)
        return present.data == {KEY: self._ca} and description == DESCRIPTION

    async def _create(self, namespace: str) -> None:
        body = {
            "metadata": {
                "name": NAME,
                "namespace": namespace,
                "annotations": {DESCRIPTION_ANNOTATION: DESCRIPTION},
            },
            "data": {KEY: self._ca},
        }
        try:
            await self._client.create(CONFIG_MAPS, body, namespace)
        except StatusError as error:
            if not is_namespace_ending(error):
                raise

    async def _restore(self, present: ConfigMap) -> None:
        # Other keys in the data are removed.
        surplus = dict.fromkeys(present.data.keys() - {KEY})
        patch = {
            "metadata": {
                "uid": present.metadata.uid,
                "annotations": {DESCRIPTION_ANNOTATION: DESCRIPTION},
            },
            "data": {**surplus, KEY: self._ca},
        }
        try:
            await self._client.patch(CONFIG_MAPS, NAME, patch, present.metadata.namespace)
        except NotFoundError:
            return  # Its deletion is on its way to us, and leads to a new one.
