"""Projections: files that a volume has from several sources, from secrets to certificates.

Source: core validation `validateProjectedVolumeSource` and its parts, Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.containers import (
    field_ref_errors,
    local_path_errors,
    resource_ref_errors,
)
from moorage.apiserver.registry.validation.go_shapes import TRUST_BUNDLE_PROJECTION, go_struct
from moorage.apiserver.registry.validation.scheduling import label_selector_errors
from moorage.apiserver.registry.validation.signers import is_kubernetes_signer, signer_name_errors

_KEY_TYPES = ("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
_LEAST_S = 60 * 60
_DAY_S = 24 * 60 * 60
CERTIFICATE_PATHS = ("credentialBundlePath", "keyPath", "certificateChainPath")
"""Files of a pod's certificate, in upstream's order; at least one is written."""
_MODE_MESSAGE = "must be a number between 0 and 0777 (octal), both inclusive"
_DOWNWARD_FIELDS = frozenset({
    "metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace",
    "metadata.uid",
})  # fmt: skip
_LEAST_TOKEN_SECONDS = 600
_MOST_TOKEN_SECONDS = 2**32
_MANY_SOURCES = "may not specify more than 1 volume type per source"
_CONFLICT = "conflicting duplicate paths"
_MOST_S, _MOST_OF_KUBERNETES_S = 91 * _DAY_S, _DAY_S


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


def mode_errors(source: Obj, path: str, field: str = "defaultMode") -> Iterator[FieldError]:
    """Validate the mode of files, by default of all files of a volume."""
    mode = source.get(field)
    if mode is not None and not 0 <= mode <= 0o777:
        yield FieldError.invalid(f"{path}.{field}", mode, _MODE_MESSAGE)


def item_errors(source: Obj, path: str) -> Iterator[FieldError]:
    """Validate which keys of a secret or config map become which files."""
    for index, item in enumerate(source.get("items", ())):
        at = f"{path}.items[{index}]"
        if not item.get("key"):
            yield FieldError.required(f"{at}.key")
        if not item.get("path"):
            yield FieldError.required(f"{at}.path")
        yield from _place_errors(item.get("path", ""), f"{at}.path")
        yield from mode_errors(item, at, "mode")


def _place_errors(value: str, path: str) -> Iterator[FieldError]:
    """Validate the path of a file in a volume."""
    yield from local_path_errors(value, path)
    # A first element `..` has been reported already.
    if value.startswith("..") and not value.startswith("../"):
        yield FieldError.invalid(path, value, "must not start with '..'")


def downward_errors(source: Obj, path: str) -> Iterator[FieldError]:
    """Validate files with fields and resources of the pod."""
    yield from mode_errors(source, path)
    for item in source.get("items", ()):
        # Upstream gives these no index.
        yield from _downward_file_errors(item, path)


def _downward_file_errors(item: Obj, path: str) -> Iterator[FieldError]:
    if not item.get("path"):
        yield FieldError.required(f"{path}.path")
    yield from _place_errors(item.get("path", ""), f"{path}.path")
    if "fieldRef" in item:
        yield from field_ref_errors(item["fieldRef"], f"{path}.fieldRef", _DOWNWARD_FIELDS)
        if "resourceFieldRef" in item:
            detail = "fieldRef and resourceFieldRef can not be specified simultaneously"
            yield FieldError.invalid(path, "resource", detail)
    elif "resourceFieldRef" in item:
        yield from resource_ref_errors(
            item["resourceFieldRef"], f"{path}.resourceFieldRef", in_volume=True
        )
    else:
        yield FieldError.required(path, "one of fieldRef and resourceFieldRef is required")
    yield from mode_errors(item, path, "mode")


def projected_errors(source: Obj, path: str) -> Iterator[FieldError]:
    """Validate the sources of a projected volume, whose files have different paths."""
    yield from mode_errors(source, path)
    taken: set[str] = set()
    for index, entry in enumerate(source.get("sources", ())):
        at = f"{path}.sources[{index}]"
        for field in ("secret", "configMap"):
            if field in entry:
                yield from _named_errors(entry[field], f"{at}.{field}", path, taken)
        if "downwardAPI" in entry:
            yield from _downward_projection_errors(
                entry["downwardAPI"], f"{at}.downwardAPI", path, taken
            )
        if "serviceAccountToken" in entry:
            yield from _token_errors(
                entry["serviceAccountToken"], f"{at}.serviceAccountToken", path
            )
        if "clusterTrustBundle" in entry:
            bundle, where = entry["clusterTrustBundle"], f"{at}.clusterTrustBundle"
            yield from trust_bundle_errors(bundle, where)
            yield from _file_errors(bundle, "path", where, path, taken)
        if "podCertificate" in entry:
            certificate, where = entry["podCertificate"], f"{at}.podCertificate"
            yield from pod_certificate_errors(certificate, where)
            for field in CERTIFICATE_PATHS:
                yield from _file_errors(certificate, field, where, path, taken)
        if len(entry) > 1:
            yield FieldError.forbidden(at, _MANY_SOURCES)


def _named_errors(projection: Obj, path: str, volume: str, taken: set[str]) -> Iterator[FieldError]:
    name = projection.get("name", "")
    if not name:
        yield FieldError.required(f"{path}.name")
    yield from item_errors(projection, path)
    for item in projection.get("items", ()):
        yield from _conflict_errors(item.get("path", ""), name, volume, taken)


def _downward_projection_errors(
    projection: Obj, path: str, volume: str, taken: set[str]
) -> Iterator[FieldError]:
    for item in projection.get("items", ()):
        yield from _downward_file_errors(item, path)
        place = item.get("path", "")
        yield from _conflict_errors(place, place, volume, taken)


def _conflict_errors(place: str, shown: str, volume: str, taken: set[str]) -> Iterator[FieldError]:
    """Reject a file whose path an earlier one has; the error shows `shown`."""
    if place and place in taken:
        yield FieldError.invalid(volume, shown, _CONFLICT)
    taken.add(place)


def _file_errors(
    projection: Obj, field: str, path: str, volume: str, taken: set[str]
) -> Iterator[FieldError]:
    """Validate the path of one file, if it is written."""
    place = projection.get(field, "")
    yield from _place_errors(place, f"{path}.{field}")
    yield from _conflict_errors(place, place, volume, taken)


def token_lifetime_errors(request: Obj, path: str) -> Iterator[FieldError]:
    """Validate how long a token is wanted for, if that is said."""
    seconds, at = request.get("expirationSeconds", _LEAST_TOKEN_SECONDS), "expirationSeconds"
    if seconds < _LEAST_TOKEN_SECONDS:
        detail = "may not specify a duration less than 10 minutes"
        yield FieldError.invalid(f"{path}.{at}", seconds, detail)
    if seconds > _MOST_TOKEN_SECONDS:
        detail = "may not specify a duration larger than 2^32 seconds"
        yield FieldError.invalid(f"{path}.{at}", seconds, detail)


def _token_errors(projection: Obj, path: str, volume: str) -> Iterator[FieldError]:
    """Validate a token of the pod's account; upstream names the volume where its path is wrong."""
    yield from token_lifetime_errors(projection, path)
    place = projection.get("path", "")
    if not place:
        yield FieldError.required(f"{volume}.path")
    else:
        yield from _place_errors(place, f"{volume}.path")
