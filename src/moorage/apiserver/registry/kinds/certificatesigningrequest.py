"""CertificateSigningRequests. Source: certificates validation of Kubernetes 1.36.

Who asks is written by the server at creation (`admission.certificates`); a request changes through
`/approval` and `/status` only.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator

from moorage.api import names
from moorage.api.certificates import (
    APPROVED,
    DENIED,
    FAILED,
    LEGACY_UNKNOWN,
    SHORTEST_S,
    TERMINAL_CONDITIONS,
    pem_blocks,
)
from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import NONE, duration_text
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.declare.rules import (
    always,
    always_text,
    at_least,
    one_of,
    part,
    required,
    unique,
    validator,
)
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
from moorage.apiserver.registry.preparation import drop_status, keep, keep_spec, keep_status, put
from moorage.apiserver.registry.validation.signers import signer_name_errors

USAGES = (
    "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign",
    "data encipherment", "decipher only", "digital signature", "email protection",
    "encipher only", "ipsec end system", "ipsec tunnel", "ipsec user", "key agreement",
    "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime", "server auth",
    "signing", "timestamping",
)  # fmt: skip
_CONDITIONS, _CERTIFICATE = "status.conditions", "status.certificate"
_STATUSES = ("False", "True", "Unknown")
_TYPES = "io.k8s.api.certificates.v1"
_SPEC = f"{_TYPES}.CertificateSigningRequestSpec"


def validate_status(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update through `/status`, which may set the certificate."""
    return validate_update(new, old, may_set_certificate=True)


def validate_approval(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update through `/approval`, which may approve and deny."""
    return validate_update(new, old, may_approve=True)


def conditions_of(request: Obj) -> list[Obj]:
    """Return the conditions in the status."""
    conditions: list[Obj] = request.get("status", {}).get("conditions", [])
    return conditions


def _request_errors(encoded: str | None, path: str) -> Iterator[FieldError]:
    from moorage.api.certificate_requests import CertificateRequestError, parse_pem_request

    try:
        parse_pem_request(base64.b64decode(encoded or "")).check_signature()
    except CertificateRequestError as error:
        yield FieldError.invalid(path, encoded, str(error))


def _signer_errors(signer: str, path: str) -> Iterable[FieldError]:
    if signer == LEGACY_UNKNOWN:
        detail = "the legacy signerName is not allowed via this API version"
        return (FieldError.invalid(path, signer, detail),)
    return signer_name_errors(signer, path)


validate_certificate_signing_request = validator(
    ("spec.request", always(_request_errors)),
    ("spec.usages", required),
    ("spec.usages[*]", one_of(*USAGES)),
    # Upstream compares them once all are known.
    ("spec.usages", part(("[*]", unique))),
    ("spec.signerName", always_text(_signer_errors)),
    (
        "spec.expirationSeconds",
        at_least(
            SHORTEST_S, f"may not specify a duration less than {SHORTEST_S} seconds (10 minutes)"
        ),
    ),
)


def validate_update(
    new: Obj, old: Obj, *, may_set_certificate: bool = False, may_approve: bool = False
) -> list[FieldError]:
    """Return the errors of an update, through the main endpoint of the metadata alone."""
    # What is wrong already may stay.
    known = set(_condition_errors(conditions_of(old)))
    errors = [error for error in _condition_errors(conditions_of(new)) if error not in known]
    before, after = (obj.get("status", {}).get("certificate", "") for obj in (old, new))
    if before != after and after:
        errors += _certificate_errors(base64.b64decode(after))
    errors += _removal_errors(new, old)
    if not may_approve:
        errors += _approval_errors(new, old)
    if before != after:
        if not may_set_certificate:
            detail = "updates may not set certificate content"
            errors.append(FieldError.forbidden(_CERTIFICATE, detail))
        elif before:
            detail = "updates may not modify existing certificate content"
            errors.append(FieldError.forbidden(_CERTIFICATE, detail))
    return errors


def _condition_errors(conditions: list[Obj]) -> Iterator[FieldError]:
    types: set[str] = set()
    for index, condition in enumerate(conditions):
        at = f"{_CONDITIONS}[{index}]"
        condition_type, status = condition.get("type", ""), condition.get("status", "")
        if not condition_type:
            yield FieldError.required(f"{at}.type")
        allowed = ("True",) if condition_type in TERMINAL_CONDITIONS else _STATUSES
        if not status:
            yield FieldError.required(f"{at}.status")
        elif status not in allowed:
            yield FieldError.not_supported(f"{at}.status", status, allowed)
        contrary = {APPROVED: DENIED, DENIED: APPROVED}.get(condition_type)
        if contrary in types:
            detail = "Approved and Denied conditions are mutually exclusive"
            yield FieldError.invalid(_CONDITIONS, condition_type, detail)
        if condition_type in types:
            yield FieldError.duplicate(f"{at}.type", condition_type)
        types.add(condition_type)


def _removal_errors(new: Obj, old: Obj) -> Iterator[FieldError]:
    for condition_type in TERMINAL_CONDITIONS:
        if len(_of_type(new, condition_type)) < len(_of_type(old, condition_type)):
            detail = f'updates may not remove a condition of type "{condition_type}"'
            yield FieldError.forbidden(_CONDITIONS, detail)


def _approval_errors(new: Obj, old: Obj) -> Iterator[FieldError]:
    """Yield the errors of approvals and denials that are added; preparation restores the others."""
    for condition_type in (APPROVED, DENIED):
        if len(_of_type(new, condition_type)) > len(_of_type(old, condition_type)):
            detail = f'updates may not add a condition of type "{condition_type}"'
            yield FieldError.forbidden(_CONDITIONS, detail)


def _of_type(request: Obj, condition_type: str) -> list[Obj]:
    return [one for one in conditions_of(request) if one.get("type") == condition_type]


def _certificate_errors(text: bytes) -> Iterator[FieldError]:
    if detail := _certificate_defect(text):
        yield FieldError.invalid(_CERTIFICATE, "<certificate data>", detail)


def _certificate_defect(text: bytes) -> str:
    """Return the error of a chain of certificates in PEM, `""` for none."""
    from cryptography import x509

    blocks = list(pem_blocks(text))
    for block in blocks:
        if block.type != "CERTIFICATE":
            found = json.dumps(block.type)
            return f"only CERTIFICATE PEM blocks are allowed, found {found}"
        if block.has_headers:
            return "no PEM block headers are permitted"
        try:
            x509.load_der_x509_certificate(block.content)
        except (ValueError, x509.InvalidVersion):
            return "x509: malformed certificate"
    return "" if blocks else "must contain at least one CERTIFICATE PEM block"


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
    served=(Served("certificates.k8s.io", "v1", f"{_TYPES}.CertificateSigningRequest"),),
    is_namespaced=False,
    short_names=("csr",),
    strategy=Strategy(
        prepare_create=drop_status,
        prepare_update=prepare_certificate_signing_request_update,
        validate=validate_certificate_signing_request,
        validate_update=validate_update,
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
