"""Projections with certificates: bundles of trust anchors, and a pod's own certificate.

Source: core validation `validateProjectionSources` of Kubernetes 1.36, KEP-3257, KEP-4317.
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.go_shapes import TRUST_BUNDLE_PROJECTION, go_struct
from moorage.apiserver.registry.validation.scheduling import label_selector_errors
from moorage.apiserver.registry.validation.signers import is_kubernetes_signer, signer_name_errors

_KEY_TYPES = ("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
_LEAST_S = 60 * 60
_DAY_S = 24 * 60 * 60
_MOST_S, _MOST_OF_KUBERNETES_S = 91 * _DAY_S, _DAY_S
CERTIFICATE_PATHS = ("credentialBundlePath", "keyPath", "certificateChainPath")
"""Files of a pod's certificate, in upstream's order; at least one is written."""


def trust_bundle_errors(projection: Obj, path: str) -> Iterator[FieldError]:
    """Validate which bundle is projected: one by its name, or those of a signer."""
    name, signer = projection.get("name"), projection.get("signerName")
    if name is not None and signer is not None:
        shown = go_struct(projection, TRUST_BUNDLE_PROJECTION)
        yield FieldError.invalid(path, shown, "only one of name and signerName may be used")
    elif name is not None:
        yield from _bundle_name_errors(name, f"{path}.name")
        if "labelSelector" in projection:
            detail = "labelSelector must be unset if name is specified"
            selector = projection["labelSelector"]
            yield FieldError.invalid(f"{path}.labelSelector", selector, detail)
    elif signer is not None:
        if not signer:
            yield FieldError.required(f"{path}.signerName", "must be a valid signer name")
        yield from signer_name_errors(signer, f"{path}.signerName")
        selector = projection.get("labelSelector", {})
        yield from label_selector_errors(selector, f"{path}.labelSelector")
    else:
        yield FieldError.required(path, "either name or signerName must be specified")
    if not projection.get("path"):
        yield FieldError.required(f"{path}.path")


def _bundle_name_errors(name: str, path: str) -> Iterator[FieldError]:
    """Validate a bundle's name, which starts with that of its signer, if it has one."""
    if not name:
        yield FieldError.required(path, "must be a valid object name")
    for detail in names.dns_subdomain_errors(name.rpartition(":")[2]):
        yield FieldError.invalid(path, name, f"not a valid clustertrustbundlename: {detail}")


def pod_certificate_errors(projection: Obj, path: str) -> Iterator[FieldError]:
    """Validate who signs a pod's certificate, for which key and how long, and its files."""
    signer = projection.get("signerName", "")
    yield from signer_name_errors(signer, f"{path}.signerName")
    annotations = projection.get("userAnnotations", {})
    yield from _user_annotation_errors(annotations, f"{path}.userAnnotations")
    key_type = projection.get("keyType", "")
    if key_type not in _KEY_TYPES:
        yield FieldError.not_supported(f"{path}.keyType", key_type, _KEY_TYPES)
    seconds, at = projection.get("maxExpirationSeconds"), f"{path}.maxExpirationSeconds"
    if seconds is not None:
        most_s = _MOST_OF_KUBERNETES_S if is_kubernetes_signer(signer) else _MOST_S
        if seconds < _LEAST_S:
            detail = f"if provided, maxExpirationSeconds must be >= {_LEAST_S}"
            yield FieldError.invalid(at, seconds, detail)
        if seconds > most_s:
            detail = f"if provided, maxExpirationSeconds must be <= {most_s}"
            yield FieldError.invalid(at, seconds, detail)
    if not any(projection.get(field) for field in CERTIFICATE_PATHS):
        detail = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"
        yield FieldError.required(path, detail)


def _user_annotation_errors(annotations: dict[str, str], path: str) -> Iterator[FieldError]:
    for key in map(str.lower, annotations):
        if not key:
            yield FieldError.required(path)
            continue
        details = names.qualified_name_errors(key)
        if not details and "/" not in key:
            details = ['must be a domain-prefixed key (such as "acme.io/foo")']
        for detail in details:
            yield FieldError.invalid(path, key, detail)
    if names.annotations_size(annotations) > names.ANNOTATIONS_MAX_BYTES:
        yield FieldError.too_long(path, names.ANNOTATIONS_MAX_BYTES)
