"""The claims of a pod."""

from __future__ import annotations

import msgspec

from moorage.api.claims import PodClaim, pod_claims
from moorage.api.claims.pod_claims import foreign_claim
from moorage.api.meta import ObjectMeta
from moorage.api.pods import Pod
from tests.api.claims.objects import a_claim


def test_named_claims_and_those_of_ephemeral_volumes() -> None:
    pod = msgspec.convert(
        {"metadata": {"name": "web"}, "spec": {"volumes": [
            {"name": "a", "emptyDir": {}},
            {"name": "b", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
            {"name": "c", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        ]}},
        Pod,
    )  # fmt: skip
    assert pod_claims("web", pod.spec.volumes) == (
        PodClaim("b", "data", is_read_only=True),
        PodClaim("c", "web-c", is_ephemeral=True),
    )


def test_an_ephemeral_volume_needs_a_claim_of_its_own_pod() -> None:
    pod = ObjectMeta(name="web", namespace="default", uid="u1")
    assert foreign_claim(pod, a_claim("web-c", owners=[{"uid": "u1", "controller": True}])) == ""
    message = "PVC default/web-c was not created for pod default/web (pod is not owner)"
    assert foreign_claim(pod, a_claim("web-c")) == message
    assert foreign_claim(pod, a_claim("web-c", owners=[{"uid": "u1"}])) == message
