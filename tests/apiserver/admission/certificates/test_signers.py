"""Who may approve, sign and attest."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.api.errors import ForbiddenError
from moorage.apiserver.admission.certificates import (
    CertificateApproval,
    CertificateSigning,
    ClusterTrustBundleAttest,
)
from moorage.apiserver.registry.kind import Kind, Obj
from moorage.apiserver.registry.kinds.certificatesigningrequest import CERTIFICATE_SIGNING_REQUEST
from moorage.apiserver.registry.kinds.clustertrustbundle import CLUSTER_TRUST_BUNDLE
from moorage.apiserver.registry.rbac import Action
from moorage.apiserver.registry.request import User
from tests.apiserver.admission.writes import admit, write

SIGNER = "example.com/signer"
CSR = 'certificatesigningrequests.certificates.k8s.io "o" is forbidden: user not permitted to'
BUNDLE = 'clustertrustbundles.certificates.k8s.io "o" is forbidden: user not permitted to'


def obj(signer: str = SIGNER, **status: Any) -> Obj:
    return {"metadata": {"name": "o"}, "spec": {"signerName": signer}, "status": status}


def holding(*grants: tuple[str, str]) -> Any:
    def is_allowed(user: User, action: Action) -> bool:
        assert user.name == "alice"
        assert (action.group, action.resource) == ("certificates.k8s.io", "signers")
        return (action.verb, action.name) in grants

    return is_allowed


PLUGINS = [
    (CertificateApproval, "approve", CERTIFICATE_SIGNING_REQUEST, "approval",
     f'{CSR} approve requests with signerName "{SIGNER}"'),
    (CertificateSigning, "sign", CERTIFICATE_SIGNING_REQUEST, "status",
     f'{CSR} sign requests with signerName "{SIGNER}"'),
    (ClusterTrustBundleAttest, "attest", CLUSTER_TRUST_BUNDLE, "",
     f'{BUNDLE} attest for signerName "{SIGNER}"'),
]  # fmt: skip


@pytest.mark.parametrize(("plugin", "verb", "kind", "part", "says"), PLUGINS)
@pytest.mark.parametrize(
    ("name", "is_granted"),
    [
        (SIGNER, True),
        ("example.com/*", True),
        ("example.com/other", False),
        ("*", False),
        ("example.com", False),
    ],
)
def test_the_verb_on_the_signer_or_its_domain(
    plugin: Any, verb: str, kind: Kind, part: str, says: str, name: str, *, is_granted: bool
) -> None:
    attributes = write(kind, obj(certificate="x"), operation="UPDATE", old=obj(), subresource=part)
    if is_granted:
        admit(plugin(holding((verb, name))), attributes)
        return
    with pytest.raises(ForbiddenError) as refusal:
        admit(plugin(holding((verb, name))), attributes)
    assert refusal.value.message == says


def test_the_signer_that_counts_is_the_stored_one() -> None:
    attributes = write(
        CERTIFICATE_SIGNING_REQUEST, obj("mine.com/s", certificate="x"), operation="UPDATE",
        old=obj(), subresource="approval",
    )  # fmt: skip
    with pytest.raises(ForbiddenError, match=SIGNER):
        admit(CertificateApproval(holding(("approve", "mine.com/s"))), attributes)


def test_a_status_without_change_needs_no_right_to_sign() -> None:
    attributes = write(
        CERTIFICATE_SIGNING_REQUEST, obj(), operation="UPDATE", old=obj(), subresource="status"
    )
    admit(CertificateSigning(holding()), attributes)


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_bundles_without_a_signer_are_anyones(operation: str) -> None:
    old = obj("") if operation == "UPDATE" else None
    admit(
        ClusterTrustBundleAttest(holding()),
        write(CLUSTER_TRUST_BUNDLE, obj(""), operation=operation, old=old),
    )


def test_the_garbage_collector_needs_no_right_to_attest() -> None:
    old, new = obj(), obj()
    old["metadata"]["finalizers"] = ["foregroundDeletion"]
    admit(
        ClusterTrustBundleAttest(holding()),
        write(CLUSTER_TRUST_BUNDLE, new, operation="UPDATE", old=old),
    )
    new["metadata"]["labels"] = {"a": "b"}
    with pytest.raises(ForbiddenError):
        admit(
            ClusterTrustBundleAttest(holding()),
            write(CLUSTER_TRUST_BUNDLE, new, operation="UPDATE", old=old),
        )
