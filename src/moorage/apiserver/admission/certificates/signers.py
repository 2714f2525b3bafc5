"""Plugins about signers: users approve, sign and attest for those that they may.

Each needs a verb on the signer (`signers.certificates.k8s.io`), by its name or by its domain
(`example.com/*`). Source: apiserver plugins CertificateApproval, CertificateSigning and
ClusterTrustBundleAttest of Kubernetes 1.37.
"""

from __future__ import annotations

from collections.abc import Callable

from moorage.api.certificates import GROUP
from moorage.apiserver.admission.chain import CREATE, UPDATE, Scope
from moorage.apiserver.admission.collector import is_for_collector
from moorage.apiserver.admission.refusal import refused
from moorage.apiserver.registry.rbac import Action
from moorage.apiserver.registry.request import Attributes, User

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
