"""PodCertificateRequests. Source: certificates validation of Kubernetes 1.37.

Who may issue, and when, is checked by `admission.certificates`.
"""

from __future__ import annotations

from typing import Any

from moorage.apiserver.registry.columns.cells import NAME, label_text, name_of
from moorage.apiserver.registry.kind import (
    Column,
    Kind,
    Obj,
    PartRules,
    Printer,
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
_SHOWN = ("podName", "serviceAccountName", "nodeName", "signerName")


def _cells(request: Obj, now: float) -> list[Any]:
    del now
    spec = request.get("spec", {})
    state = "Pending"
    for condition in request.get("status", {}).get("conditions", []):
        if condition.get("type") in STATES:
            state = condition["type"]
    return [
        name_of(request),
        *(spec.get(field, "") for field in _SHOWN),
        state,
        label_text(spec.get("unverifiedUserAnnotations")),
    ]


_PRINTER = Printer(
    columns=(
        NAME,
        Column("PodName", documented_by=f"{_SPEC}.podName"),
        Column("ServiceAccountName", documented_by=f"{_SPEC}.serviceAccountName"),
        Column("NodeName", documented_by=f"{_SPEC}.nodeName"),
        Column("SignerName", documented_by=f"{_SPEC}.signerName"),
        Column("State", description="Is the request Pending, Issued, Denied, or Failed?"),
        Column(
            "UnverifiedUserAnnotations",
            documented_by=f"{_SPEC}.unverifiedUserAnnotations",
            priority=1,
        ),
    ),
    cells=_cells,
)

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
    printer=_PRINTER,
    selectable=tuple(
        SelectableField(f"spec.{field}", ("spec", field))
        for field in ("signerName", "podName", "nodeName")
    ),
    subresources=status_subresource(),
)
