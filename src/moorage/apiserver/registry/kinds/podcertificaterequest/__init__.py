"""PodCertificateRequests. Source: certificates validation of Kubernetes 1.36.

Who may issue, and when, is checked by `admission.certificates`.
"""

from __future__ import annotations

from moorage.apiserver.registry.columns.cells import NONE, label_text
from moorage.apiserver.registry.declare.columns import NAME, column, printer
from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    PartRules,
    SelectableField,
    Served,
    Strategy,
    status_subresource,
)
from moorage.apiserver.registry.kinds.podcertificaterequest.status import STATES, validate_status
from moorage.apiserver.registry.kinds.podcertificaterequest.validation import (
    validate_pod_certificate_request,
    validate_pod_certificate_request_update,
)
from moorage.apiserver.registry.preparation import drop_status, keep_all_but_status, keep_status

_TYPES = "io.k8s.api.certificates.v1"
_SPEC = f"{_TYPES}.PodCertificateRequestSpec"


def _state_of(request: Obj) -> str:
    state = "Pending"
    for condition in request.get("status", {}).get("conditions", []):
        if condition.get("type") in STATES:
            state = condition["type"]
    return state


POD_CERTIFICATE_REQUEST = Kind(
    name="PodCertificateRequest",
    plural="podcertificaterequests",
    served=(
        Served(group="certificates.k8s.io", version="v1", type=f"{_TYPES}.PodCertificateRequest"),
    ),
    strategy=Strategy(
        prepare_create=drop_status,
        prepare_update=keep_status,
        validate=validate_pod_certificate_request,
        validate_update=validate_pod_certificate_request_update,
        parts={"status": PartRules(prepare=keep_all_but_status, validate=validate_status)},
        needs_revision_on_update=True,
    ),
    printer=printer(
        NAME,
        column("PodName", "spec.podName", of=_SPEC),
        column("ServiceAccountName", "spec.serviceAccountName", of=_SPEC),
        column("NodeName", "spec.nodeName", of=_SPEC),
        column("SignerName", "spec.signerName", of=_SPEC),
        column(
            "State", _state_of, description="Is the request Pending, Issued, Denied, or Failed?"
        ),
        column(
            "UnverifiedUserAnnotations",
            "spec.unverifiedUserAnnotations",
            of=_SPEC,
            absent=NONE,
            show=label_text,
            priority=1,
        ),
    ),
    selectable=tuple(
        SelectableField(f"spec.{field}", ("spec", field))
        for field in ("signerName", "podName", "nodeName")
    ),
    subresources=status_subresource(),
)
