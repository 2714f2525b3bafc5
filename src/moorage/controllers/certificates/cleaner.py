"""Deletion of certificate requests that are over, and of those that are left undecided.

Source: kube-controller-manager `csrcleaner` and `podcertificaterequestcleaner` of Kubernetes 1.36.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from moorage.api.certificates import (
    API_SERVER_SERVING,
    APPROVED,
    DENIED,
    FAILED,
    CertificateSigningRequest,
)
from moorage.api.clock import Clock, parse_time
from moorage.api.errors import AlreadyExistsError, NotFoundError
from moorage.controllers.informers import Informers
from moorage.controllers.loop import Keys, Loop, key_if_present
from moorage.controllers.objects import POD_CERTIFICATE_REQUESTS
from moorage.controllers.requests import locked
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import CLUSTER_TRUST_BUNDLES, PartialObject
from moorage.wire.client.rest import Client

# Publisher of the ClusterTrustBundle that verifies the API server.
#
# There is one of the signer `kubernetes.io/kube-apiserver-serving`, named after its content; others
# of that signer are deleted. Source: kube-controller-manager
# `kube-apiserver-serving-clustertrustbundle-publisher` of Kubernetes 1.36.

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


_DECIDED = timedelta(hours=1)
_WAITING = timedelta(hours=24)
_POD_REQUEST = timedelta(minutes=15)
"""All uses of a PodCertificateRequest are over by then."""


def deletion_time(request: CertificateSigningRequest) -> datetime | None:
    """Return when a request is deleted; None if only a change of it can lead to that."""
    conditions, certificate = request.status.conditions, request.status.certificate
    if not conditions:
        return _after(request.metadata.creation_timestamp, _WAITING)
    times = [
        _after(condition.last_update_time, _DECIDED)
        for condition in conditions
        if condition.type in (DENIED, FAILED) or (condition.type == APPROVED and certificate)
    ]
    for condition in conditions:
        if condition.type == APPROVED:
            times.append(
                _end_of(certificate)
                if certificate
                else _after(condition.last_update_time, _WAITING)
            )
    return min((time for time in times if time is not None), default=None)


def _after(start: str | None, life: timedelta) -> datetime | None:
    return parse_time(start) + life if start else None


def _end_of(certificate: str) -> datetime | None:
    """Return when a certificate expires; None if it cannot be read."""
    # Imported here: large, and most clusters have no certificate requests.
    from cryptography import x509

    try:
        parsed = x509.load_pem_x509_certificate(base64.b64decode(certificate))
    except (ValueError, x509.InvalidVersion):
        return None
    return parsed.not_valid_after_utc


def certificate_cleaner(client: Client, informers: Informers, clock: Clock) -> Loop[str]:
    """Return the loop that deletes CertificateSigningRequests when their time is over."""
    return _cleaner(
        "certificate cleaner", client, informers.certificate_requests, deletion_time, clock,
        key_if_present, is_locked=True,
    )  # fmt: skip


def pod_certificate_request_cleaner(client: Client, clock: Clock) -> Loop[str]:
    """Return the loop that deletes PodCertificateRequests 15 minutes after their creation.

    It runs the informer of its own, so the server must serve the kind.
    """

    def due(request: PartialObject) -> datetime:
        return _after(request.metadata.creation_timestamp, _POD_REQUEST) or clock.now()

    def added(before: PartialObject | None, after: PartialObject | None) -> Iterable[str]:
        return key_if_present(before, after) if before is None else ()

    requests = Informer(client, POD_CERTIFICATE_REQUESTS, clock=clock)
    return _cleaner(
        "pod certificate cleaner", client, requests, due, clock, added, owned=[requests]
    )


def _cleaner(
    name: str,
    client: Client,
    requests: Informer[Any],
    due_of: Callable[[Any], datetime | None],
    clock: Clock,
    keys: Keys[str],
    *,
    is_locked: bool = False,
    owned: Iterable[Informer[Any]] = (),
) -> Loop[str]:
    """Return the loop that deletes objects when they are due; `is_locked`: only as read."""

    async def reconcile(key: str) -> float | None:
        request = requests.get_key(key)
        due = None if request is None else due_of(request)
        if request is None or due is None:
            return None
        left_s = (due - clock.now()).total_seconds()
        if left_s > 0:
            return left_s
        meta = request.metadata
        lock = {"resource_version": meta.resource_version} if is_locked else {}
        with suppress(NotFoundError):  # Gone already, as wanted.
            await client.delete(
                requests.resource, meta.name, meta.namespace or None, uid=meta.uid, **lock
            )
        return None

    return Loop(name, reconcile, [(requests, keys)], clock, owned=owned)
