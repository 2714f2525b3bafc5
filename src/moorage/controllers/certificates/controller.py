"""Certificate controller: approves what node agents ask for, signs what is approved.

A client certificate of a node agent is approved if its requester may create the subresource
`selfnodeclient` (for its own name) or `nodeclient` of certificate requests. All else is approved by
people. Source: kube-controller-manager `csrapproving` and `csrsigning` of Kubernetes 1.36.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from moorage.api.certificates import (
    APPROVED,
    DENIED,
    FAILED,
    GROUP,
    KUBELET_CLIENT,
    CertificateSigningRequest,
    RequestCondition,
    RequestStatus,
)
from moorage.api.clock import Clock, format_time, parse_time
from moorage.api.errors import NotFoundError
from moorage.api.logs import Log
from moorage.controllers.informers import Informers
from moorage.controllers.loop import Loop
from moorage.controllers.requests import status_patch
from moorage.wire.client.resources import CERTIFICATE_SIGNING_REQUESTS
from moorage.wire.client.rest import Client

if TYPE_CHECKING:
    from moorage.api.certificate_requests import CertificateRequest
    from moorage.controllers.certificates.signing import SigningAuthority

_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 1000.0
_MESSAGES = {
    "selfnodeclient": ("Auto approving self kubelet client certificate after SubjectAccessReview."),
    "nodeclient": "Auto approving kubelet client certificate after SubjectAccessReview.",
}
"""Subresource whose creation must be allowed → the reason given for the approval."""

log = Log(__name__)


class CertificateController:
    """Approves and signs. Keys are names of requests.

    `ca` is the authority's certificate in PEM, `ca_key` the file of its key, read when the first
    certificate is signed; without one nothing is signed.
    """

    def __init__(
        self, client: Client, informers: Informers, ca: str, ca_key: Path | None, clock: Clock
    ) -> None:
        self._client = client
        self._requests = informers.certificate_requests
        self._ca = ca
        self._ca_key = ca_key
        self._authority: SigningAuthority | None = None
        self._clock = clock
        self.run = Loop(
            "certificates", self._reconcile, [(self._requests, self._request_changed)], clock
        ).run

    def _request_changed(
        self, before: CertificateSigningRequest | None, after: CertificateSigningRequest | None
    ) -> Iterator[str]:
        del before
        if after is not None and not after.status.certificate:
            yield after.metadata.name

    async def _reconcile(self, name: str) -> float | None:
        request = self._requests.get(name)
        if request is None or request.status.certificate or request.has(DENIED):
            return None
        if not request.has(APPROVED):
            return await self._approve(request)
        if not request.has(FAILED) and self._ca_key is not None:
            await self._sign(request, self._ca_key)
        return None

    async def _approve(self, request: CertificateSigningRequest) -> float | None:
        if request.spec.signer_name != KUBELET_CLIENT:
            return None
        # Imported here: large, and most clusters have no such request.
        from moorage.controllers.certificates.rules import is_kubelet_client

        parsed = _parsed(request)
        if parsed is None or not is_kubelet_client(parsed, request.spec.usages):
            return None
        tried = ["nodeclient"]
        if request.spec.username == parsed.common_name:
            tried.insert(0, "selfnodeclient")
        for subresource in tried:
            if await self._may(request, subresource):
                approved = RequestCondition(
                    type=APPROVED, status="True", reason="AutoApproved",
                    message=_MESSAGES[subresource],
                )  # fmt: skip
                await self._write(request, approved, "approval")
                return None
        log.debug("certificate request not approved", request=request.metadata.name, tried=tried)
        # A grant of the permission leads to no event here.
        return self._pause_s(request)

    def _pause_s(self, request: CertificateSigningRequest) -> float:
        """Return the seconds until a request is looked at again: they double as it gets older."""
        created = request.metadata.creation_timestamp
        age = self._clock.now() - parse_time(created) if created else timedelta()
        return min(max(age.total_seconds(), _FIRST_PAUSE_S), _LONGEST_PAUSE_S)

    async def _may(self, request: CertificateSigningRequest, subresource: str) -> bool:
        """Return whether the requester may create a subresource of certificate requests."""
        spec = request.spec
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": spec.username,
                "uid": spec.uid,
                "groups": spec.groups,
                "extra": spec.extra,
                "resourceAttributes": {
                    "group": GROUP,
                    "version": "*",
                    "resource": "certificatesigningrequests",
                    "subresource": subresource,
                    "verb": "create",
                },
            },
        }
        answer = await self._client.request("POST", _REVIEWS, body=msgspec.json.encode(review))
        return bool(msgspec.json.decode(answer)["status"].get("allowed"))

    async def _sign(self, request: CertificateSigningRequest, key: Path) -> None:
        # Imported here: large, and most clusters sign nothing.
        from moorage.controllers.certificates.rules import defect_of
        from moorage.controllers.certificates.signing import SigningAuthority

        parsed, spec = _parsed(request), request.spec
        defect = None if parsed is None else defect_of(spec.signer_name, parsed, spec.usages)
        if parsed is None or defect is None:
            return
        if defect:
            now = format_time(self._clock.now())
            failed = RequestCondition(
                type=FAILED, status="True", reason="SignerValidationFailure", message=defect,
                last_update_time=now,
            )  # fmt: skip
            await self._write(request, failed, "status")
            return
        if self._authority is None:
            self._authority = SigningAuthority.load(self._ca, key)
        signed = self._authority.sign(
            parsed, spec.usages, spec.expiration_seconds, self._clock.now()
        )
        status = msgspec.structs.replace(request.status, certificate=_encoded(signed))
        await self._patch(request, status, "status")

    async def _write(
        self, request: CertificateSigningRequest, condition: RequestCondition, subresource: str
    ) -> None:
        conditions = (*request.status.conditions, condition)
        status = msgspec.structs.replace(request.status, conditions=conditions)
        await self._patch(request, status, subresource)

    async def _patch(
        self, request: CertificateSigningRequest, status: RequestStatus, subresource: str
    ) -> None:
        patch = status_patch(request.metadata, request.status, status)
        try:
            await self._client.patch(
                CERTIFICATE_SIGNING_REQUESTS, request.metadata.name, patch,
                subresource=subresource,
            )  # fmt: skip
        except NotFoundError:
            return  # It was deleted meanwhile.


def _parsed(request: CertificateSigningRequest) -> CertificateRequest | None:
    """Return the parsed request; None for a malformed one, which validation lets no one store."""
    from moorage.api.certificate_requests import CertificateRequestError, parse_pem_request

    try:
        return parse_pem_request(request.pem)
    except CertificateRequestError as error:
        log.warning("malformed request", request=request.metadata.name, error=error)
        return None


def _encoded(pem: bytes) -> str:
    return base64.b64encode(pem).decode()
