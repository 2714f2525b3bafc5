"""Deletion of certificate requests that are over, and of those that are left undecided.

Source: kube-controller-manager `csrcleaner` and `podcertificaterequestcleaner` of Kubernetes 1.36.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from moorage.api.certificates import APPROVED, DENIED, FAILED, CertificateSigningRequest
from moorage.api.clock import Clock, parse_time
from moorage.api.errors import NotFoundError
from moorage.controllers.informers import Informers
from moorage.controllers.loop import Keys, Loop, key_if_present
from moorage.controllers.objects import POD_CERTIFICATE_REQUESTS
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import PartialObject
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
