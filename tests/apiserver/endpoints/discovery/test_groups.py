"""The order of groups and versions."""

from __future__ import annotations

import pytest

from moorage.apiserver.endpoints.discovery.documents import grouped, is_former_home
from moorage.apiserver.registry.kind import Kind, Served
from moorage.apiserver.registry.kinds.deployment import DEPLOYMENT
from moorage.apiserver.registry.kinds.event import EVENT
from moorage.apiserver.registry.resource_map import ResourceMap


def _kind(name: str, *places: tuple[str, str]) -> Kind:
    served = tuple(Served(group=group, version=version, type="T") for group, version in places)
    return Kind(name=name, plural=f"{name.lower()}s", served=served)


KINDS = (
    _kind("Zebra", ("z.io", "v1")),
    _kind("Bee", ("a.io", "v1alpha1"), ("a.io", "v1beta1"), ("a.io", "v1"), ("a.io", "v2")),
    _kind("Ant", ("a.io", "v1"), ("extensions", "v1beta1")),
    _kind("Pod", ("", "v1")),
    _kind("Slice", ("discovery.k8s.io", "v1")),
    _kind("Set", ("apps", "v1")),
)


def test_known_groups_come_first_and_the_former_one_last() -> None:
    assert [group.name for group in grouped(ResourceMap(KINDS).resources())] == [
        "", "apps", "discovery.k8s.io", "a.io", "z.io", "extensions",
    ]  # fmt: skip


def test_versions_are_by_maturity_and_resources_by_name() -> None:
    (group,) = [
        candidate
        for candidate in grouped(ResourceMap(KINDS).resources())
        if candidate.name == "a.io"
    ]
    assert [version.version for version in group.versions] == ["v2", "v1", "v1beta1", "v1alpha1"]
    first = group.versions[1]
    assert first.group_version == "a.io/v1"
    assert [(kind.name, served.version) for kind, served in first.resources] == [
        ("Ant", "v1"), ("Bee", "v1"),
    ]  # fmt: skip
    assert grouped(ResourceMap(KINDS).resources())[0].versions[0].group_version == "v1"


@pytest.mark.parametrize(
    ("kind", "index", "expected"),
    [(DEPLOYMENT, 0, False), (DEPLOYMENT, 1, True), (EVENT, 0, False), (EVENT, 1, False)],
)
def test_a_former_home_is_a_deprecated_group_other_than_the_first(
    kind: Kind, index: int, expected: bool
) -> None:
    assert is_former_home(kind, kind.served[index]) is expected
