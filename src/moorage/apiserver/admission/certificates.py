"""Admission of certificate requests and trust bundles: who may approve, sign and attest what."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import timedelta

from moorage.api.certificates import API_SERVER_CLIENT, GROUP, KUBELET_CLIENT, KUBELET_SERVING
from moorage.api.clock import Clock, format_time, parse_time
from moorage.api.errors import FieldError, InvalidError
from moorage.apiserver.admission.admission_request import refused
from moorage.apiserver.admission.chain import CREATE, UPDATE, Scope, is_for_collector
from moorage.apiserver.admission.node_restriction import NODE_USER_PREFIX, node_name_of
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.rbac import Action
from moorage.apiserver.registry.request import SYSTEM_MASTERS, Attributes, User

# Certificate requests of node agents: each asks for certificates in its own name only.
#
# Part of upstream's plugin NodeRestriction of Kubernetes 1.36, with the gate
# AllowInsecureKubeletCertificateSigningRequests off as it is by default.


class NodeCertificateRequests:
    """Refuses requests of a node agent to the agents' signers for another's name."""

    name = "NodeRestriction"
    scope = Scope.of([f"certificatesigningrequests.{GROUP}"], [CREATE])
    mutate = None

    def __init__(self) -> None:
        self.validate = self._check

    def _check(self, attributes: Attributes) -> None:
        node_name = node_name_of(attributes.request.user)
        spec = (attributes.obj or {}).get("spec", {})
        if node_name is None or spec.get("signerName") not in (KUBELET_CLIENT, KUBELET_SERVING):
            return
        from moorage.api.certificate_requests import CertificateRequestError, parse_pem_request

        try:
            request = parse_pem_request(base64.b64decode(spec.get("request", "")))
        except CertificateRequestError as error:
            raise refused(attributes, f"unable to parse csr: {error}") from error
        own = f"{NODE_USER_PREFIX}{node_name}"
        if request.common_name != own:
            raise refused(attributes, f"can only create a node CSR with CN={own}")


# Plugins about signers: users approve, sign and attest for those that they may.
#
# Each needs a verb on the signer (`signers.certificates.k8s.io`), by its name or by its domain
# (`example.com/*`). Source: apiserver plugins CertificateApproval, CertificateSigning and
# ClusterTrustBundleAttest of Kubernetes 1.36.

IsAllowed = Callable[[User, Action], bool]
"""The cluster's authorizer."""

_REQUESTS = f"certificatesigningrequests.{GROUP}"
_BUNDLES = f"clustertrustbundles.{GROUP}"


class CertificateApproval:
    """Refuses approvals and denials by users without the verb `approve` on the signer."""

    name = "CertificateApproval"
    scope = Scope.of([_REQUESTS], [UPDATE], ["approval"])
    mutate = None

    def __init__(self, is_allowed: IsAllowed) -> None:
        self._is_allowed = is_allowed
        self.validate = self._check

    def _check(self, attributes: Attributes) -> None:
        # The old object's: an approval cannot change the signer.
        signer = signer_of(attributes.old)
        if not may(self._is_allowed, attributes.request.user, "approve", signer):
            why = f'user not permitted to approve requests with signerName "{signer}"'
            raise refused(attributes, why)


class CertificateSigning:
    """Refuses certificates and conditions from users without the verb `sign` on the signer."""

    name = "CertificateSigning"
    scope = Scope.of([_REQUESTS], [UPDATE], ["status"])
    mutate = None

    def __init__(self, is_allowed: IsAllowed) -> None:
        self._is_allowed = is_allowed
        self.validate = self._check

    def _check(self, attributes: Attributes) -> None:
        new, old = attributes.obj or {}, attributes.old or {}
        if new.get("status", {}) == old.get("status", {}):
            return
        signer = signer_of(old)
        if not may(self._is_allowed, attributes.request.user, "sign", signer):
            why = f'user not permitted to sign requests with signerName "{signer}"'
            raise refused(attributes, why)


class ClusterTrustBundleAttest:
    """Refuses bundles of a signer from users without the verb `attest` on it."""

    name = "ClusterTrustBundleAttest"
    scope = Scope.of([_BUNDLES], [CREATE, UPDATE])
    mutate = None

    def __init__(self, is_allowed: IsAllowed) -> None:
        self._is_allowed = is_allowed
        self.validate = self._check

    def _check(self, attributes: Attributes) -> None:
        signer = signer_of(attributes.obj)
        if not signer or is_for_collector(attributes):
            return
        if not may(self._is_allowed, attributes.request.user, "attest", signer):
            raise refused(attributes, f'user not permitted to attest for signerName "{signer}"')


def signer_of(obj: dict[str, object] | None) -> str:
    """Return the signer that a request or bundle names, `""` for none."""
    spec = (obj or {}).get("spec", {})
    return str(spec.get("signerName", "")) if isinstance(spec, dict) else ""


def may(is_allowed: IsAllowed, user: User, verb: str, signer: str) -> bool:
    """Return whether a user has a verb on a signer, by its name or by its domain."""
    domain = signer.partition("/")[0]
    return any(
        is_allowed(user, Action(verb=verb, group=GROUP, resource="signers", name=name))
        for name in (signer, f"{domain}/*")
    )


# Who may issue pod certificates, and when. Upstream's registry checks it with the status.
#
# Source: registry `certificates/podcertificaterequest` of Kubernetes 1.36.

_SKEW = timedelta(minutes=5)


class PodCertificateSigning:
    """Refuses issued certificates of another time, and statuses by users without `sign`."""

    name = "PodCertificateSigning"
    scope = Scope.of([f"podcertificaterequests.{GROUP}"], [UPDATE], ["status"])
    mutate = None

    def __init__(self, is_allowed: IsAllowed, clock: Clock) -> None:
        self._is_allowed = is_allowed
        self._clock = clock
        self.validate = self._check

    def _check(self, attributes: Attributes) -> None:
        new, old = attributes.obj or {}, attributes.old or {}
        if new.get("status", {}) == old.get("status", {}):
            return
        start = new["status"].get("notBefore")
        if start is not None and abs(self._clock.now() - parse_time(start)) >= _SKEW:
            detail = "must be set to within 5 minutes of kube-apiserver's current time"
            raise _refused(attributes, FieldError.invalid("status.notBefore", start, detail))
        user, signer = attributes.request.user, signer_of(old)
        if not may(self._is_allowed, user, "sign", signer):
            detail = f'User "{user.name}" is not permitted to "sign" for signer "{signer}"'
            raise _refused(attributes, FieldError.forbidden("spec.signerName", detail))


def _refused(attributes: Attributes, error: FieldError) -> InvalidError:
    kind = attributes.kind
    return InvalidError.of(kind.name, attributes.name, [error], group=kind.group)


# What the server writes in certificate requests: who asks, and when conditions changed.
#
# Upstream's registry does so when it prepares a write. Source: registry `certificates/strategy` of
# Kubernetes 1.36.

_WRITTEN = ("username", "uid", "groups", "extra")


class CertificateRequester:
    """Sets the requester of new requests, and missing times of conditions."""

    name = "CertificateRequester"
    scope = Scope.of(
        [f"certificatesigningrequests.{GROUP}"], [CREATE, UPDATE], ["", "approval", "status"]
    )
    validate = None

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.mutate = self._complete

    def _complete(self, attributes: Attributes) -> None:
        obj = attributes.obj
        assert obj is not None
        if attributes.operation == CREATE:
            _set_requester(obj["spec"], attributes.request.user)
        elif attributes.subresource:
            assert attributes.old is not None
            _set_times(obj, attributes.old, format_time(self._clock.now()))


def _set_requester(spec: Obj, user: User) -> None:
    known = {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra.items()},
    }
    for field in _WRITTEN:
        spec.pop(field, None)
        if known[field]:
            spec[field] = known[field]


def _set_times(new: Obj, old: Obj, now: str) -> None:
    """Set the missing times. A condition with the status that it had keeps its transition time."""
    since = {
        (condition.get("type"), condition.get("status")): condition["lastTransitionTime"]
        for condition in reversed(old.get("status", {}).get("conditions", []))
        if condition.get("lastTransitionTime")
    }
    for condition in new.get("status", {}).get("conditions", []):
        condition.setdefault("lastUpdateTime", now)
        key = (condition.get("type"), condition.get("status"))
        condition.setdefault("lastTransitionTime", since.get(key, now))


# CertificateSubjectRestriction plugin: no client certificate makes its holder a cluster admin.
#
# Source: apiserver plugin CertificateSubjectRestriction of Kubernetes 1.36.


class CertificateSubjectRestriction:
    """Refuses requests to `kube-apiserver-client` with the organization `system:masters`."""

    name = "CertificateSubjectRestriction"
    scope = Scope.of([f"certificatesigningrequests.{GROUP}"], [CREATE])
    mutate = None

    def __init__(self) -> None:
        self.validate = self._check

    def _check(self, attributes: Attributes) -> None:
        spec = (attributes.obj or {}).get("spec", {})
        if spec.get("signerName") != API_SERVER_CLIENT:
            return
        from moorage.api.certificate_requests import CertificateRequestError, parse_pem_request

        try:
            request = parse_pem_request(base64.b64decode(spec.get("request", "")))
        except CertificateRequestError as error:
            raise refused(attributes, f"failed to parse CSR: {error}") from error
        if SYSTEM_MASTERS in request.organizations:
            why = f"use of {API_SERVER_CLIENT} signer with {SYSTEM_MASTERS} group is not allowed"
            raise refused(attributes, why)
