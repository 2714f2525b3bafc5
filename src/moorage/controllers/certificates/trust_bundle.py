"""Publisher of the ClusterTrustBundle that verifies the API server.

There is one of the signer `kubernetes.io/kube-apiserver-serving`, named after its content; others
of that signer are deleted. Source: kube-controller-manager
`kube-apiserver-serving-clustertrustbundle-publisher` of Kubernetes 1.36.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress

from moorage.api.certificates import API_SERVER_SERVING
from moorage.api.clock import Clock
from moorage.api.errors import AlreadyExistsError, NotFoundError
from moorage.controllers.loop import Loop
from moorage.controllers.requests import locked
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import CLUSTER_TRUST_BUNDLES
from moorage.wire.client.rest import Client

_HASH_BYTES = 12
_KEY = ""


def bundle_name(ca: str) -> str:
    """Return the name of the bundle with that content."""
    digest = hashlib.sha256(ca.encode()).digest()[:_HASH_BYTES]
    return f"{API_SERVER_SERVING.replace('/', ':')}:{digest.hex()}"


def trust_bundle_publisher(client: Client, ca: str, clock: Clock) -> Loop[str]:
    """Return the loop that keeps one bundle with the cluster's CA; `ca` is PEM text.

    It has one key, and runs the informer of its own, so the server must serve the kind.
    """
    name = bundle_name(ca)
    bundles = Informer(
        client, CLUSTER_TRUST_BUNDLES,
        field_selector=f"spec.signerName={API_SERVER_SERVING}", clock=clock,
    )  # fmt: skip

    async def reconcile(key: str) -> None:
        del key
        present = bundles.get(name)
        if present is None:
            body = {
                "metadata": {"name": name},
                "spec": {"signerName": API_SERVER_SERVING, "trustBundle": ca},
            }
            with suppress(AlreadyExistsError):  # Its event is on its way to us.
                await client.create(CLUSTER_TRUST_BUNDLES, body)
        elif present.spec.trust_bundle != ca:
            patch = {"metadata": locked(present.metadata), "spec": {"trustBundle": ca}}
            # A deletion is on its way to us, and leads to a new one.
            with suppress(NotFoundError):
                await client.patch(CLUSTER_TRUST_BUNDLES, name, patch)
        for meta in [bundle.metadata for bundle in bundles]:
            if meta.name != name:
                with suppress(NotFoundError):  # Gone already, as wanted.
                    await client.delete(CLUSTER_TRUST_BUNDLES, meta.name, uid=meta.uid)

    return Loop(
        "trust bundle", reconcile, [(bundles, lambda _before, _after: (_KEY,))], clock,
        owned=[bundles], first=[_KEY],
    )  # fmt: skip
