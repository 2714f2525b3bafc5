"""PodCertificateRequests. Source: certificates validation of Kubernetes 1.37."""

from __future__ import annotations

from moorage.registry.kind import Kind, PartRules, Served, Strategy, status_subresource
from moorage.registry.preparation import drop_status, keep_spec, keep_status

_TYPES = "io.k8s.api.certificates.v1"

POD_CERTIFICATE_REQUEST = Kind(
    name="PodCertificateRequest",
    plural="podcertificaterequests",
    served=(
        Served(group="certificates.k8s.io", version="v1", type=f"{_TYPES}.PodCertificateRequest"),
    ),
    strategy=Strategy(
        prepare_create=drop_status,
        prepare_update=keep_status,
        parts={"status": PartRules(prepare=keep_spec)},
    ),
    subresources=status_subresource(),
)
