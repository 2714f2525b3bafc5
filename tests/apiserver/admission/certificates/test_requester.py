"""What the server writes in certificate requests."""

from __future__ import annotations

from moorage.apiserver.admission.certificates import CertificateRequester
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.certificatesigningrequest import CERTIFICATE_SIGNING_REQUEST
from moorage.apiserver.registry.request import User
from tests.apiserver.admission.writes import admit, write
from tests.clocks import FakeClock

NOW, BEFORE = "2026-01-01T00:00:00Z", "2025-01-01T00:00:00Z"
USER = User("alice", uid="7", groups=("dev",), extra={"k": ("v", "w")})


def plugin() -> CertificateRequester:
    return CertificateRequester(FakeClock())


def csr(*conditions: Obj, **spec: object) -> Obj:
    return {"metadata": {"name": "r"}, "spec": spec, "status": {"conditions": list(conditions)}}


def test_a_new_request_names_its_requester() -> None:
    forged = csr(username="root", uid="0", groups=["system:masters"], extra={"a": ["b"]}, other=1)
    spec = admit(plugin(), write(CERTIFICATE_SIGNING_REQUEST, forged, user=USER))["spec"]
    assert spec == {
        "username": "alice", "uid": "7", "groups": ["dev"], "extra": {"k": ["v", "w"]}, "other": 1,
    }  # fmt: skip
    forged = csr(username="root", uid="0", extra={"a": ["b"]})
    anonymous = write(CERTIFICATE_SIGNING_REQUEST, forged, user=User("bob"))
    assert admit(plugin(), anonymous)["spec"] == {"username": "bob"}


def test_missing_times_of_conditions_are_set() -> None:
    old = csr(
        {"type": "A", "status": "True", "lastTransitionTime": BEFORE, "lastUpdateTime": BEFORE},
        {"type": "B", "status": "True", "lastTransitionTime": BEFORE, "lastUpdateTime": BEFORE},
    )
    new = csr(
        {"type": "A", "status": "True"},
        {"type": "B", "status": "False"},
        {"type": "C", "status": "True", "lastTransitionTime": BEFORE, "lastUpdateTime": BEFORE},
    )
    for part in ("status", "approval"):
        attributes = write(
            CERTIFICATE_SIGNING_REQUEST, new, operation="UPDATE", old=old, subresource=part
        )
        conditions = admit(plugin(), attributes)["status"]["conditions"]
        times = [(one["lastTransitionTime"], one["lastUpdateTime"]) for one in conditions]
        assert times == [(BEFORE, NOW), (NOW, NOW), (BEFORE, BEFORE)]


def test_an_update_of_the_metadata_sets_nothing() -> None:
    new = csr({"type": "A", "status": "True"}, username="alice")
    attributes = write(CERTIFICATE_SIGNING_REQUEST, new, operation="UPDATE", old=csr(), user=USER)
    after = admit(plugin(), attributes)
    assert after == csr({"type": "A", "status": "True"}, username="alice")
