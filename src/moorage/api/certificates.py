"""Certificate signing requests and trust bundles, their signers and usages.

Source: certificates.k8s.io/v1.
"""

from __future__ import annotations

import base64

from moorage.api.meta import Object, ObjectMeta

GROUP = "certificates.k8s.io"
API_SERVER_CLIENT = "kubernetes.io/kube-apiserver-client"
KUBELET_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING = "kubernetes.io/kubelet-serving"
LEGACY_UNKNOWN = "kubernetes.io/legacy-unknown"
API_SERVER_SERVING = "kubernetes.io/kube-apiserver-serving"

APPROVED, DENIED, FAILED = "Approved", "Denied", "Failed"
TERMINAL_CONDITIONS = (APPROVED, DENIED, FAILED)
"""Conditions of a CertificateSigningRequest that, once there, stay and are True."""

SHORTEST_S = 600
"""Shortest duration that a CertificateSigningRequest may ask for."""


class RequestCondition(Object, frozen=True):
    """`CertificateSigningRequestCondition`."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_update_time: str | None = None
    last_transition_time: str | None = None


class RequestSpec(Object, frozen=True):
    """`request` is PEM text in base64."""

    request: str = ""
    signer_name: str = ""
    expiration_seconds: int | None = None
    usages: tuple[str, ...] = ()
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class RequestStatus(Object, frozen=True):
    """`certificate` is PEM text in base64."""

    conditions: tuple[RequestCondition, ...] = ()
    certificate: str = ""


class CertificateSigningRequest(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: RequestSpec = RequestSpec()
    status: RequestStatus = RequestStatus()

    @property
    def pem(self) -> bytes:
        """The request as PEM text. Raises ValueError if it is not base64."""
        return base64.b64decode(self.spec.request, validate=True)

    def has(self, condition_type: str) -> bool:
        """Return whether a condition of that type exists."""
        return any(condition.type == condition_type for condition in self.status.conditions)


class ClusterTrustBundleSpec(Object, frozen=True):
    """`trust_bundle` is PEM text."""

    signer_name: str = ""
    trust_bundle: str = ""


class ClusterTrustBundle(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ClusterTrustBundleSpec = ClusterTrustBundleSpec()
