"""CertificateSigningRequests. Source: certificates validation of Kubernetes 1.36.

Who asks is written by the server at creation (`admission.certificates`); a request changes through
`/approval` and `/status` only.
"""

from __future__ import annotations

from moorage.api import names
from moorage.api.certificates import APPROVED, DENIED, FAILED
from moorage.apiserver.registry.columns.ages import duration_text
from moorage.apiserver.registry.columns.cells import NONE
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.kind import (
    STATUS_VERBS,
    Kind,
    Obj,
    PartRules,
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


def _state_of(request: Obj) -> str:
    types = {condition.get("type") for condition in conditions_of(request)}
    state = "Denied" if DENIED in types else "Approved" if APPROVED in types else "Pending"
    if FAILED in types:
        state += ",Failed"
    if request.get("status", {}).get("certificate"):
        state += ",Issued"
    return state


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
    printer=printer(
        NAME,
        AGE,
        column(
            "SignerName",
            "spec.signerName",
            of=_SPEC,
            absent=NONE,
            show=lambda name: name or NONE,
        ),
        column("Requestor", "spec.username", documented_by=f"{_SPEC}.request"),
        column(
            "RequestedDuration",
            "spec.expirationSeconds",
            of=_SPEC,
            absent=NONE,
            show=duration_text,
        ),
        column(
            "Condition",
            _state_of,
            documented_by=f"{_TYPES}.CertificateSigningRequestStatus.conditions",
        ),
    ),
    selectable=(SelectableField("spec.signerName", ("spec", "signerName")),),
    subresources={**status_subresource(), "approval": Subresource(verbs=STATUS_VERBS)},
)
