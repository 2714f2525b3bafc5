"""Names of signers: `DOMAIN/PATH`.

Source: core validation `ValidateSignerName` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from moorage.api import names
from moorage.api.errors import FieldError

_MAX_PATH = names.SUBDOMAIN_MAX + names.LABEL_MAX + 1
_MAX_NAME = names.SUBDOMAIN_MAX + _MAX_PATH + 1
_FORM = "must be a fully qualified domain and path of the form 'example.com/signer-name'"


def is_kubernetes_signer(signer: str) -> bool:
    """Return whether the domain of a signer is reserved for Kubernetes."""
    domain = signer.partition("/")[0]
    return domain == "kubernetes.io" or domain.endswith(".kubernetes.io")


def signer_name_errors(signer: str, path: str) -> Iterator[FieldError]:
    """Validate the name of a signer at a field path."""
    if not signer:
        yield FieldError.required(path)
        return
    domain, slash, rest = signer.partition("/")
    if not slash or "/" in rest:
        yield FieldError.invalid(path, signer, _FORM)
        return
    if len(domain) > names.SUBDOMAIN_MAX:
        yield FieldError.too_long(path, names.SUBDOMAIN_MAX)
    yield from _label_errors(domain, names.dns_label_errors, path)
    if "." not in domain:
        detail = "should be a domain with at least two segments separated by dots"
        yield FieldError.invalid(path, domain, detail)
    yield from _label_errors(rest, names.dns_subdomain_errors, path)
    if len(signer) > _MAX_NAME:
        yield FieldError.too_long(path, _MAX_NAME)


def _label_errors(
    dotted: str, errors_of: Callable[[str], list[str]], path: str
) -> Iterator[FieldError]:
    """Yield the errors of the first malformed label of a dotted name."""
    for label in dotted.split("."):
        if details := errors_of(label):
            for detail in details:
                yield FieldError.invalid(path, dotted, f'validating label "{label}": {detail}')
            return
