"""Storage classes: whose a claim is, and which is the default."""

from __future__ import annotations

import pytest

from moorage.api.claims import class_of_claim, default_class, is_delayed
from moorage.api.claims.classes import names_class
from tests.api.claims.objects import a_claim, a_storage_class

BETA = {"volume.beta.kubernetes.io/storage-class": "old"}


def test_the_older_annotation_comes_before_the_field() -> None:
    assert class_of_claim(a_claim(storage_class="new", annotations=BETA)) == "old"
    assert class_of_claim(a_claim(storage_class="new")) == "new"
    assert class_of_claim(a_claim(storage_class=None)) == ""


@pytest.mark.parametrize(("name", "is_named"), [(None, False), ("", True), ("fast", True)])
def test_an_empty_class_is_a_choice(name: str | None, is_named: bool) -> None:
    assert names_class(a_claim(storage_class=name)) is is_named


def test_only_late_binding_delays() -> None:
    assert is_delayed(a_storage_class(is_late=True))
    assert not is_delayed(a_storage_class())
    assert not is_delayed(None)


def test_the_newest_default_is_the_default() -> None:
    classes = [
        a_storage_class("a", is_default=True, created="2026-01-01T00:00:00Z"),
        a_storage_class("c", is_default=True, created="2026-02-01T00:00:00Z"),
        a_storage_class("b", is_default=True, created="2026-02-01T00:00:00Z"),
        a_storage_class("z", created="2026-03-01T00:00:00Z"),
    ]
    chosen = default_class(classes)
    assert chosen is not None
    assert chosen.metadata.name == "b"
    assert default_class(classes[3:]) is None
