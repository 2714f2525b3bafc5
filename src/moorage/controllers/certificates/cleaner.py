"""Deletion of certificate requests that are over, and of those that are left undecided.

Source: kube-controller-manager `csrcleaner` and `podcertificaterequestcleaner` of Kubernetes 1.37.
"""

from __future__ import annotations

import asyncio
import base64
from datetime import datetime, timedelta

from moorage.api.certificates import APPROVED, DENIED, FAILED, CertificateSigningRequest
from moorage.api.clock import Clock, parse_time
from moorage.api.errors import NotFoundError
from moorage.controllers.informers import Informers, wait_synced
from moorage.controllers.objects import POD_CERTIFICATE_REQUESTS
from moorage.wire.client.informer import Informer, object_key
from moorage.wire.client.queue import WorkQueue
from moorage.wire.client.resources import CERTIFICATE_SIGNING_REQUESTS, PartialObject
from moorage.wire.client.rest import Client

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


class CertificateCleaner:
    """Deletes CertificateSigningRequests when their time is over. Keys are their names."""

    def __init__(self, client: Client, informers: Informers, clock: Clock) -> None:
        self._client = client
        self._requests = informers.certificate_requests
        self._clock = clock
        self._queue: WorkQueue[str] = WorkQueue("certificate cleaner", clock=clock)
        self._requests.add_handler(self._request_changed)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await wait_synced(self._requests)
        await self._queue.run(self._reconcile)

    def _request_changed(
        self, before: CertificateSigningRequest | None, after: CertificateSigningRequest | None
    ) -> None:
        del before
        if after is not None:
            self._queue.add(after.metadata.name)

    async def _reconcile(self, name: str) -> float | None:
        request = self._requests.get(name)
        due = None if request is None else deletion_time(request)
        if request is None or due is None:
            return None
        left_s = (due - self._clock.now()).total_seconds()
        if left_s > 0:
            return left_s
        meta = request.metadata
        try:
            await self._client.delete(
                CERTIFICATE_SIGNING_REQUESTS, name, uid=meta.uid,
                resource_version=meta.resource_version,
            )  # fmt: skip
        except NotFoundError:
            return None  # Gone already, as wanted.
        return None


class PodCertificateRequestCleaner:
    """Deletes PodCertificateRequests 15 minutes after their creation. Keys are `namespace/name`."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._requests = Informer(client, POD_CERTIFICATE_REQUESTS, clock=clock)
        self._queue: WorkQueue[str] = WorkQueue("pod certificate cleaner", clock=clock)
        self._requests.add_handler(self._request_changed)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._requests.run())
            await wait_synced(self._requests)
            tasks.create_task(self._queue.run(self._reconcile))

    def _request_changed(self, before: PartialObject | None, after: PartialObject | None) -> None:
        if before is None and after is not None:
            self._queue.add(object_key(after.metadata))

    async def _reconcile(self, key: str) -> float | None:
        request = self._requests.get_key(key)
        if request is None:
            return None
        meta = request.metadata
        due = _after(meta.creation_timestamp, _POD_REQUEST)
        left_s = (due - self._clock.now()).total_seconds() if due is not None else 0.0
        if left_s > 0:
            return left_s
        try:
            await self._client.delete(
                POD_CERTIFICATE_REQUESTS, meta.name, meta.namespace, uid=meta.uid
            )
        except NotFoundError:
            return None  # Gone already, as wanted.
        return None
