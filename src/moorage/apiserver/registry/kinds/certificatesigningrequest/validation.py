"""Rules of CertificateSigningRequests: the request, its conditions, the certificate.

Source: certificates validation of Kubernetes 1.36. The specification never changes, so updates
check status and conditions only. The library of certificates is imported at its first use: most
servers never see a request.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

from moorage.api.certificates import (
    APPROVED,
    DENIED,
    LEGACY_UNKNOWN,
    SHORTEST_S,
    TERMINAL_CONDITIONS,
    pem_blocks,
)
from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj
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


def validate_certificate_signing_request(request: Obj) -> list[FieldError]:
    """Return the errors of a new CertificateSigningRequest."""
    spec = request.get("spec", {})
    errors = [
        *_request_errors(spec.get("request")),
        *_usage_errors(spec.get("usages", [])),
        *_signer_errors(spec.get("signerName", "")),
    ]
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < SHORTEST_S:
        detail = f"may not specify a duration less than {SHORTEST_S} seconds (10 minutes)"
        errors.append(FieldError.invalid("spec.expirationSeconds", seconds, detail))
    return errors


def validate_certificate_signing_request_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update of the metadata."""
    return _update_errors(new, old)


def validate_status(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update through `/status`, which may set the certificate."""
    return _update_errors(new, old, may_set_certificate=True)


def validate_approval(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update through `/approval`, which may approve and deny."""
    return _update_errors(new, old, may_approve=True)


def conditions_of(request: Obj) -> list[Obj]:
    """Return the conditions in the status."""
    conditions: list[Obj] = request.get("status", {}).get("conditions", [])
    return conditions


def _request_errors(encoded: str | None) -> Iterator[FieldError]:
    from moorage.api.certificate_requests import CertificateRequestError, parse_pem_request

    try:
        parse_pem_request(base64.b64decode(encoded or "")).check_signature()
    except CertificateRequestError as error:
        yield FieldError.invalid("spec.request", encoded, str(error))


def _usage_errors(usages: list[str]) -> Iterator[FieldError]:
    if not usages:
        yield FieldError.required("spec.usages")
    for index, usage in enumerate(usages):
        if usage not in USAGES:
            yield FieldError.not_supported(f"spec.usages[{index}]", usage, USAGES)
    seen: set[str] = set()
    for index, usage in enumerate(usages):
        if usage in seen:
            yield FieldError.duplicate(f"spec.usages[{index}]", usage)
        seen.add(usage)


def _signer_errors(signer: str) -> Iterator[FieldError]:
    if signer == LEGACY_UNKNOWN:
        detail = "the legacy signerName is not allowed via this API version"
        yield FieldError.invalid("spec.signerName", signer, detail)
        return
    yield from signer_name_errors(signer, "spec.signerName")


def _update_errors(
    new: Obj, old: Obj, *, may_set_certificate: bool = False, may_approve: bool = False
) -> list[FieldError]:
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
