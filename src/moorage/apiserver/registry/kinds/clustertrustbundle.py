"""ClusterTrustBundles. Source: certificates validation of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api import names
from moorage.api.certificates import Block, pem_blocks
from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import NONE
from moorage.apiserver.registry.declare.columns import NAME, column, printer
from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    SelectableField,
    Served,
    Strategy,
)
from moorage.apiserver.registry.validation.signers import signer_name_errors

_TYPES = "io.k8s.api.certificates.v1"
_SIGNER, _BUNDLE = "spec.signerName", "spec.trustBundle"
_MAX_BYTES = 1024 * 1024
_OMITTED = "<value omitted>"


def validate_cluster_trust_bundle(bundle: Obj) -> list[FieldError]:
    """Return the errors of a new ClusterTrustBundle."""
    return [*_common_errors(bundle), *_bundle_errors(_spec_of(bundle).get("trustBundle", ""))]


def validate_cluster_trust_bundle_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update. A bundle that stays is not parsed again."""
    before, after = _spec_of(old), _spec_of(new)
    errors = list(_common_errors(new))
    if before.get("trustBundle", "") != after.get("trustBundle", ""):
        errors += _bundle_errors(after.get("trustBundle", ""))
    signer = after.get("signerName", "")
    if before.get("signerName", "") != signer:
        errors.append(FieldError.invalid(_SIGNER, signer, "field is immutable"))
    return errors


def _spec_of(bundle: Obj) -> Obj:
    spec: Obj = bundle.get("spec", {})
    return spec


def _common_errors(bundle: Obj) -> Iterator[FieldError]:
    signer = _spec_of(bundle).get("signerName", "")
    name = bundle["metadata"].get("name", "")
    for detail in _name_errors(name, signer):
        yield FieldError.invalid("metadata.name", name, detail)
    if signer:
        yield from signer_name_errors(signer, _SIGNER)


def _name_errors(name: str, signer: str) -> list[str]:
    """Validate a name: that of a signer's bundle starts with the signer's."""
    if not signer:
        if ":" in name:
            return ['ClusterTrustBundle without signer name must not have ":" in its name']
        return names.dns_subdomain_errors(name)
    prefix = signer.replace("/", ":") + ":"
    if not name.startswith(prefix):
        return [f"ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}"]
    return names.dns_subdomain_errors(name.removeprefix(prefix))


def _bundle_errors(bundle: str) -> list[FieldError]:
    text = bundle.encode()
    if len(text) > _MAX_BYTES:
        return [FieldError.too_long(_BUNDLE, _MAX_BYTES)]
    places: dict[bytes, list[int]] = {}
    errors: list[FieldError] = []
    for index, block in enumerate(pem_blocks(text)):
        if defect := _defect_of(block):
            errors.append(_invalid(f"entry {index} {defect}"))
        else:
            places.setdefault(block.content, []).append(index)
    if errors:
        return errors
    if not places:
        return [_invalid("at least one trust anchor must be provided")]
    return [
        _invalid(f"duplicate trust anchor (indices [{' '.join(map(str, indices))}])")
        for indices in places.values()
        if len(indices) > 1
    ]


def _defect_of(block: Block) -> str:
    """Return the error of an entry, `""` for a certificate of an authority."""
    if block.type != "CERTIFICATE":
        return f"has bad block type: {block.type}"
    if block.has_headers:
        return "has PEM block headers"
    # Imported here: most servers never see a bundle.
    from cryptography import x509

    try:
        certificate = x509.load_der_x509_certificate(block.content)
        extension = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except x509.ExtensionNotFound:
        return "does not have the CA bit set"
    except (
        ValueError,
        x509.DuplicateExtension,
        x509.InvalidVersion,
        x509.UnsupportedGeneralNameType,
    ):
        return "does not parse as X.509"
    return "" if extension.value.ca else "does not have the CA bit set"


def _invalid(detail: str) -> FieldError:
    return FieldError.invalid(_BUNDLE, _OMITTED, detail)


CLUSTER_TRUST_BUNDLE = Kind(
    name="ClusterTrustBundle",
    plural="clustertrustbundles",
    served=(Served("certificates.k8s.io", "v1", f"{_TYPES}.ClusterTrustBundle"),),
    is_namespaced=False,
    strategy=Strategy(
        validate=validate_cluster_trust_bundle,
        validate_update=validate_cluster_trust_bundle_update,
        # Which names are legal depends on the signer.
        name_errors=names.path_segment_errors,
        needs_revision_on_update=True,
    ),
    printer=printer(
        NAME,
        column("SignerName", "spec.signerName", of=f"{_TYPES}.ClusterTrustBundleSpec", absent=NONE),
    ),
    selectable=(SelectableField("spec.signerName", ("spec", "signerName")),),
)
