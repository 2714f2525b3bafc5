"""Which volume a claim gets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.claims import best_match, is_bound_to, mismatch
from moorage.api.claims.binding import capacity, requested
from tests.api.claims.objects import HOSTNAME, a_claim, a_volume, claim_json

OTHER = claim_json("other")
SELECTOR = {"matchLabels": {"tier": "gold"}}
BOTH = ("ReadWriteOnce", "ReadOnlyMany")


def matched(claim: Any, *volumes: Any, **more: Any) -> str | None:
    volume = best_match(claim, volumes, **more)
    return None if volume is None else volume.metadata.name


def test_the_smallest_volume_that_is_large_enough_is_chosen() -> None:
    volumes = [a_volume("large", size="9Gi"), a_volume("right", size="3Gi"), a_volume("small")]
    assert matched(a_claim(size="2Gi"), *volumes) == "right"


def test_a_volume_that_names_the_claim_comes_before_all_smaller_ones() -> None:
    claim = claim_json()
    named = a_volume("named", size="9Gi", claim=claim, by_name_only=True, phase="Pending")
    assert matched(a_claim(), a_volume("small"), named) == "named"


@pytest.mark.parametrize(
    ("claim", "volume"),
    [
        ({"size": "2Gi"}, {}),
        ({"storage_class": "fast"}, {}),
        ({}, {"storage_class": "fast"}),
        ({"modes": BOTH}, {}),
        ({"volumeMode": "Block"}, {}),
        ({}, {"volumeMode": "Block"}),
        ({"selector": SELECTOR}, {"labels": {"tier": "silver"}}),
        ({"volumeAttributesClassName": "gold"}, {}),
        ({}, {"volumeAttributesClassName": "gold"}),
        ({}, {"claim": OTHER}),
        ({}, {"claim": OTHER, "by_name_only": True}),
        ({}, {"phase": "Pending"}),
        ({}, {"phase": "Released"}),
    ],
)
def test_a_volume_that_lacks_something_is_not_chosen(
    claim: dict[str, Any], volume: dict[str, Any]
) -> None:
    assert matched(a_claim(**claim), a_volume(**volume)) is None


@pytest.mark.parametrize(
    ("claim", "volume"),
    [
        ({"selector": SELECTOR}, {"labels": {"tier": "gold"}}),
        ({}, {"modes": BOTH}),
        ({"volumeMode": "Filesystem"}, {}),
        ({"volumeMode": "Block"}, {"volumeMode": "Block"}),
        ({"annotations": {"volume.beta.kubernetes.io/storage-class": "old"}},
         {"storage_class": "old"}),
        ({"storage_class": None}, {}),
        ({"size": "1024Mi"}, {}),
    ],
)  # fmt: skip
def test_one_that_has_all_is(claim: dict[str, Any], volume: dict[str, Any]) -> None:
    assert matched(a_claim(**claim), a_volume(**volume)) == "pv"


def test_the_uid_of_a_deleted_claim_of_the_same_name_does_not_count() -> None:
    volume = a_volume(claim=claim_json(uid="earlier"))
    assert not is_bound_to(volume, a_claim())
    assert matched(a_claim(), volume) is None


def test_late_binding_takes_only_a_volume_that_names_the_claim() -> None:
    assert matched(a_claim(), a_volume(), is_delayed=True) is None
    assert matched(a_claim(), a_volume(claim=claim_json()), is_delayed=True) == "pv"


def test_for_a_node_only_volumes_that_can_be_used_there_count() -> None:
    here, there = a_volume("here", size="5Gi", node="n1"), a_volume("there", node="n2")
    assert matched(a_claim(), here, there, node_labels={HOSTNAME: "n1"}) == "here"
    assert matched(a_claim(), there, node_labels={HOSTNAME: "n1"}) is None


def test_a_volume_that_names_the_claim_and_is_elsewhere_rules_the_node_out() -> None:
    named = a_volume("named", claim=claim_json(), node="n2")
    assert matched(a_claim(), named, a_volume("free"), node_labels={HOSTNAME: "n1"}) is None


def test_excluded_volumes_are_not_chosen_again() -> None:
    assert matched(a_claim(), a_volume("a"), a_volume("b"), excluded={"a"}) == "b"


@pytest.mark.parametrize(
    ("claim", "volume", "why"),
    [
        ({"size": "2Gi"}, {}, "requested PV is too small"),
        ({"storage_class": "fast"}, {}, "storageClassName does not match"),
        ({"volumeAttributesClassName": "g"}, {}, "volumeAttributesClassName does not match"),
        ({"volumeMode": "Block"}, {}, "incompatible volumeMode"),
        ({"modes": BOTH}, {}, "incompatible accessMode"),
        ({}, {}, ""),
    ],
)
def test_the_reason_why_a_named_volume_does_not_do(
    claim: dict[str, Any], volume: dict[str, Any], why: str
) -> None:
    assert mismatch(a_volume(**volume), a_claim(**claim)) == why


SIZES = st.integers(1, 40).map(lambda count: f"{count}Gi")


@given(size=SIZES, sizes=st.lists(SIZES, max_size=8))
def test_no_smaller_volume_would_have_done(size: str, sizes: list[str]) -> None:
    claim = a_claim(size=size)
    volumes = [a_volume(f"v{index}", size=text) for index, text in enumerate(sizes)]
    chosen = best_match(claim, volumes)
    enough = [volume for volume in volumes if requested(claim) <= capacity(volume)]
    if chosen is None:
        assert not enough
    else:
        assert capacity(chosen) == min(map(capacity, enough))
