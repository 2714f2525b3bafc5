"""Handles of the volumes that Moorage provisions: never a path."""

from __future__ import annotations

import uuid

import pytest

from moorage.api.claims.classes import DRIVER, handle_of, node_problem
from tests.api.claims.objects import a_volume

UID = "6a1f0b7e-9f0a-4c52-8a55-0e3f9a2b1c77"


def of_handle(handle: str) -> str | None:
    return handle_of(a_volume(hostPath=None, csi={"driver": DRIVER, "volumeHandle": handle}))


def test_the_handle_is_the_uid_of_a_claim() -> None:
    assert of_handle(UID) == UID
    assert of_handle(str(uuid.uuid4()))


@pytest.mark.parametrize(
    "handle",
    ["", ".", "..", "../../etc", f"{UID}/..", f"../{UID}", f"{UID}\n", UID.upper(), UID[:-1],
     f"{UID}\0", "/etc", UID.replace("-", "/")],
)  # fmt: skip
def test_no_other_text_is_one(handle: str) -> None:
    with pytest.raises(ValueError, match="is not the uid of a claim"):
        of_handle(handle)


def test_other_volumes_have_none() -> None:
    assert handle_of(a_volume()) is None
    other = a_volume(hostPath=None, csi={"driver": "disks.example.com", "volumeHandle": UID})
    assert handle_of(other) is None


def test_a_node_that_no_label_can_name_gets_no_volumes() -> None:
    assert node_problem("n1", "n1") == ""
    assert "has no label" in node_problem("n1", "")
    assert "too long" in node_problem("n" * 64, "n1")
