"""CertificateSigningRequests. Source: certificates validation of Kubernetes 1.37.

Who asks is written by the server at creation (`admission.certificates`); a request changes through
`/approval` and `/status` only.
"""

from __future__ import annotations

from typing import Any

from moorage.api import names
from moorage.api.certificates import APPROVED, DENIED, FAILED
from moorage.apiserver.registry.columns.ages import duration_text
from moorage.apiserver.registry.columns.cells import AGE, NAME, NONE, age_of, name_of
from moorage.apiserver.registry.kind import (
    STATUS_VERBS,
    Column,
    Kind,
    Obj,
    PartRules,
    Printer,
    SelectableField,
    Served,
    Strategy,
    Subresource,
    status_subresource,
)
from moorage.apiserver.registry.kinds.certificatesigningrequest.validation import (
    conditions_of,
    validate_approval,
    validate_certificate_signing_request,
    validate_certificate_signing_request_update,
    validate_status,
)
from moorage.apiserver.registry.preparation import drop_status, keep, keep_spec, keep_status, put

_TYPES = "io.k8s.api.certificates.v1"
_SPEC = f"{_TYPES}.CertificateSigningRequestSpec"


def prepare_certificate_signing_request_update(new: Obj, old: Obj) -> None:
    """Keep everything but the metadata."""
    keep_spec(new, old)
    keep_status(new, old)


def prepare_status(new: Obj, old: Obj) -> None:
    """Keep the specification, and the conditions that `/approval` sets if as many are there."""
    keep_spec(new, old)
    after = conditions_of(new)
    for condition_type in (APPROVED, DENIED):
        kept = [one for one in conditions_of(old) if one.get("type") == condition_type]
        places = [at for at, one in enumerate(after) if one.get("type") == condition_type]
        if len(kept) == len(places):
            for at, condition in zip(places, kept, strict=True):
                after[at] = condition


def prepare_approval(new: Obj, old: Obj) -> None:
    """Keep everything but metadata and conditions."""
    conditions = conditions_of(new)
    keep_spec(new, old)
    keep(new, old, "status")
    status = dict(new.get("status", {}))
    put(status, "conditions", conditions or None)
    new["status"] = status


def _cells(request: Obj, now: float) -> list[Any]:
    spec = request.get("spec", {})
    seconds = spec.get("expirationSeconds")
    return [
        name_of(request),
        age_of(request, now),
        spec.get("signerName") or NONE,
        spec.get("username", ""),
        NONE if seconds is None else duration_text(seconds),
        _state_of(request),
    ]


def _state_of(request: Obj) -> str:
    types = {condition.get("type") for condition in conditions_of(request)}
    state = "Denied" if DENIED in types else "Approved" if APPROVED in types else "Pending"
    if FAILED in types:
        state += ",Failed"
    if request.get("status", {}).get("certificate"):
        state += ",Issued"
    return state


_PRINTER = Printer(
    columns=(
        NAME,
        AGE,
        Column("SignerName", documented_by=f"{_SPEC}.signerName"),
        Column("Requestor", documented_by=f"{_SPEC}.request"),
        Column("RequestedDuration", documented_by=f"{_SPEC}.expirationSeconds"),
        Column("Condition", documented_by=f"{_TYPES}.CertificateSigningRequestStatus.conditions"),
    ),
    cells=_cells,
)

CERTIFICATE_SIGNING_REQUEST = Kind(
    name="CertificateSigningRequest",
    plural="certificatesigningrequests",
    served=(
        Served(
            group="certificates.k8s.io", version="v1", type=f"{_TYPES}.CertificateSigningRequest"
        ),
    ),
    is_namespaced=False,
    short_names=("csr",),
    strategy=Strategy(
        prepare_create=drop_status,
        prepare_update=prepare_certificate_signing_request_update,
        validate=validate_certificate_signing_request,
        validate_update=validate_certificate_signing_request_update,
        name_errors=names.path_segment_errors,
        parts={
            "status": PartRules(prepare=prepare_status, validate=validate_status),
            "approval": PartRules(prepare=prepare_approval, validate=validate_approval),
        },
    ),
    printer=_PRINTER,
    selectable=(SelectableField("spec.signerName", ("spec", "signerName")),),
    subresources={**status_subresource(), "approval": Subresource(verbs=STATUS_VERBS)},
)
