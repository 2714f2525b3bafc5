from __future__ import annotations

import msgspec
import pytest

from moorage.api.labels import from_labels
from moorage.api.meta import ObjectMeta
from moorage.controllers.objects import Pod
from moorage.controllers.ownership import Claims, controller_of, sort_claims, without_owners
from tests.controllers.objects import ago, owner, pod

WEB = from_labels({"app": "web"})
OWNER = ObjectMeta(name="rs", namespace="default", uid="rs")
LEAVING = msgspec.structs.replace(OWNER, deletion_timestamp=ago(0))
OTHER = {"app": "other"}


@pytest.mark.parametrize(
    ("claimant", "candidate", "fate"),
    [
        (OWNER, pod("p", owners=(owner("rs"),)), "kept"),
        (OWNER, pod("p", owners=(owner("rs"),), labels=OTHER), "released"),
        (OWNER, pod("p"), "adopted"),
        (OWNER, pod("p", labels=OTHER), ""),
        (OWNER, pod("p", is_deleting=True), ""),
        (OWNER, pod("p", owners=(owner("another"),)), ""),
        (OWNER, pod("p", owners=(owner("another", controls=False),)), "adopted"),
        (LEAVING, pod("p"), ""),
        (LEAVING, pod("p", owners=(owner("rs"),), labels=OTHER), ""),
        (LEAVING, pod("p", owners=(owner("rs"),)), "kept"),
    ],
)
def test_claims(claimant: ObjectMeta, candidate: Pod, fate: str) -> None:
    claims = sort_claims(claimant, WEB, [candidate])
    assert claims == Claims(**({fate: (candidate,)} if fate else {}))


def test_only_a_controlling_owner_controls() -> None:
    meta = pod("p", owners=(owner("a", controls=False), owner("b"))).metadata
    controller = controller_of(meta)
    assert controller is not None
    assert controller.uid == "b"


def test_taking_an_owner_out_leaves_the_others_as_they_are() -> None:
    meta = pod("p", owners=(owner("a", blocks=False), owner("b"))).metadata
    assert without_owners(meta, {"b"}) == [
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": "a",
            "uid": "a",
            "controller": True,
            "blockOwnerDeletion": False,
        }
    ]
