"""Who may issue pod certificates, and when."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.api.errors import InvalidError
from moorage.apiserver.admission.certificates import PodCertificateSigning
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.podcertificaterequest import POD_CERTIFICATE_REQUEST
from tests.apiserver.admission.writes import admit, write
from tests.clocks import FakeClock


def pcr(**status: Any) -> Obj:
    return {"metadata": {"name": "r"}, "spec": {"signerName": "a.io/s"}, "status": status}


@pytest.mark.parametrize(
    ("status", "verb", "says"),
    [
        ({}, "", None),
        ({"conditions": []}, "sign", None),
        ({"conditions": []}, "approve",
         'spec.signerName: Forbidden: User "alice" is not permitted to "sign" for signer "a.io/s"'),
        ({"notBefore": "2026-01-01T00:04:59Z"}, "sign", None),
        ({"notBefore": "2025-12-31T23:55:00Z"}, "sign",
         'status.notBefore: Invalid value: "2025-12-31T23:55:00Z": must be set to within 5 minutes '
         "of kube-apiserver's current time"),
    ],
)  # fmt: skip
def test_statuses(status: Obj, verb: str, says: str | None) -> None:
    plugin = PodCertificateSigning(lambda _, action: action.verb == verb, FakeClock())
    attributes = write(
        POD_CERTIFICATE_REQUEST, pcr(**status), operation="UPDATE", old=pcr(), subresource="status"
    )
    if says is None:
        admit(plugin, attributes)
        return
    with pytest.raises(InvalidError) as refusal:
        admit(plugin, attributes)
    assert refusal.value.message == (
        f'PodCertificateRequest.certificates.k8s.io "r" is invalid: {says}'
    )
