"""Publisher of the ClusterTrustBundle that verifies the API server.

There is one of the signer `kubernetes.io/kube-apiserver-serving`, named after its content; others
of that signer are deleted. Source: kube-controller-manager
`kube-apiserver-serving-clustertrustbundle-publisher` of Kubernetes 1.37.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from moorage.api.certificates import API_SERVER_SERVING, ClusterTrustBundle
from moorage.api.clock import Clock
from moorage.api.errors import AlreadyExistsError, NotFoundError
from moorage.controllers.loop import Loop
from moorage.controllers.patches import locked
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import CLUSTER_TRUST_BUNDLES
from moorage.wire.client.rest import Client

_HASH_BYTES = 12
_KEY = ""


def bundle_name(ca: str) -> str:
    """Return the name of the bundle with that content."""
    digest = hashlib.sha256(ca.encode()).digest()[:_HASH_BYTES]
    return f"{API_SERVER_SERVING.replace('/', ':')}:{digest.hex()}"


class TrustBundlePublisher:
    """Keeps one bundle with the cluster's CA; `ca` is PEM text. There is a single key."""

    def __init__(self, client: Client, ca: str, clock: Clock) -> None:
        self._client = client
        self._ca = ca
        self._name = bundle_name(ca)
        self._bundles = Informer(
            client,
            CLUSTER_TRUST_BUNDLES,
            field_selector=f"spec.signerName={API_SERVER_SERVING}",
            clock=clock,
        )
        self.run = Loop(
            "trust bundle",
            self._reconcile,
            [(self._bundles, self._bundle_changed)],
            clock,
            owned=[self._bundles],
            first=[_KEY],
        ).run

    def _bundle_changed(
        self, before: ClusterTrustBundle | None, after: ClusterTrustBundle | None
    ) -> Iterator[str]:
        del before, after
        yield _KEY

    async def _reconcile(self, key: str) -> float | None:
        del key
        present = self._bundles.get(self._name)
        if present is None:
            await self._create()
        elif present.spec.trust_bundle != self._ca:
            await self._restore(present)
        for bundle in list(self._bundles):
            meta = bundle.metadata
            if meta.name != self._name:
                await self._delete(meta.name, meta.uid)
        return None

    async def _create(self) -> None:
        body = {
            "metadata": {"name": self._name},
            "spec": {"signerName": API_SERVER_SERVING, "trustBundle": self._ca},
        }
        try:
            await self._client.create(CLUSTER_TRUST_BUNDLES, body)
        except AlreadyExistsError:
            return  # Its event is on its way to us.

    async def _restore(self, present: ClusterTrustBundle) -> None:
        patch = {"metadata": locked(present.metadata), "spec": {"trustBundle": self._ca}}
        try:
            await self._client.patch(CLUSTER_TRUST_BUNDLES, self._name, patch)
        except NotFoundError:
            return  # Its deletion is on its way to us, and leads to a new one.

    async def _delete(self, name: str, uid: str) -> None:
        try:
            await self._client.delete(CLUSTER_TRUST_BUNDLES, name, uid=uid)
        except NotFoundError:
            return  # Gone already, as wanted.
