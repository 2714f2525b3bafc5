"""Binding: the volume is written first, and names its claim by uid."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.api.claims.annotations import BIND_COMPLETED, BOUND_BY_CONTROLLER
from moorage.api.claims.binding import binding_patch, claim_reference, is_claim_bound
from tests.api.claims.objects import a_claim, a_volume, claim_json


def test_a_claim_is_referred_to_by_its_identity_and_revision() -> None:
    claim = claim_json("data", uid="u7")
    claim["metadata"]["resourceVersion"] = "41"
    typed = a_claim("data", uid="u7")
    reference = claim_reference(typed)
    assert reference == {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "namespace": "default",
        "name": "data",
        "uid": "u7",
        "resourceVersion": typed.metadata.resource_version,
    }


@pytest.mark.parametrize("volume", ["", "pv"])
@pytest.mark.parametrize("annotations", [{}, {BIND_COMPLETED: "yes"}])
@pytest.mark.parametrize("phase", ["Pending", "Bound", "Lost"])
def test_a_binding_is_complete_when_all_three_say_so(
    volume: str, annotations: dict[str, str], phase: str
) -> None:
    claim = a_claim(volume=volume, annotations=annotations, phase=phase)
    assert is_claim_bound(claim) is (bool(volume) and bool(annotations) and phase == "Bound")


def test_a_volume_that_names_the_claim_fully_is_not_written() -> None:
    assert binding_patch(a_volume(claim=claim_json()), a_claim()) is None


@pytest.mark.parametrize(
    ("volume", "annotations"),
    [
        ({}, {BOUND_BY_CONTROLLER: "yes"}),
        # A user named the claim: the volume stays reserved for it.
        ({"claim": claim_json(), "by_name_only": True}, None),
    ],
)
def test_another_volume_names_the_claim_at_its_own_revision(
    volume: dict[str, Any], annotations: dict[str, str] | None
) -> None:
    one, claim = a_volume(**volume), a_claim()
    metadata: dict[str, Any] = {
        "uid": one.metadata.uid,
        "resourceVersion": one.metadata.resource_version,
    }
    if annotations is not None:
        metadata["annotations"] = annotations
    assert binding_patch(one, claim) == {
        "metadata": metadata,
        "spec": {"claimRef": claim_reference(claim)},
    }
