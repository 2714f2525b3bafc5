"""CertificateSigningRequests. Source: certificates validation of Kubernetes 1.37."""

from __future__ import annotations

from moorage.registry.kind import (
    STATUS_VERBS,
    Kind,
    PartRules,
    SelectableField,
    Served,
    Strategy,
    Subresource,
    status_subresource,
)
from moorage.registry.preparation import drop_status, keep_spec, keep_status

_TYPES = "io.k8s.api.certificates.v1"

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
        prepare_update=keep_status,
        parts={"status": PartRules(prepare=keep_spec)},
    ),
    selectable=(SelectableField("spec.signerName", ("spec", "signerName")),),
    subresources={**status_subresource(), "approval": Subresource(verbs=STATUS_VERBS)},
)
