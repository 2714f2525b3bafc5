"""The resources that the parts use, against the kinds that the API server serves."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.api.runtime_group import GROUP
from moorage.apiserver.registry.kinds import ALL_KINDS
from moorage.wire.client import resources
from moorage.wire.client.resources import PartialObject, Resource

_DECLARED: list[Resource[Any]] = [
    value
    for value in vars(resources).values()
    # Those of our own group are custom resources, and have tests of their own.
    if isinstance(value, Resource) and value.group != GROUP
]
_CUSTOM: Resource[PartialObject] = Resource("g.io", "v2", "things", "Thing", PartialObject)


@pytest.mark.parametrize("resource", _DECLARED, ids=lambda resource: resource.plural)
def test_a_resource_is_one_that_is_served(resource: Resource[Any]) -> None:
    (kind,) = [served_kind for served_kind in ALL_KINDS if served_kind.name == resource.kind]
    places = [(served.group, served.version) for served in kind.served]
    assert (resource.group, resource.version) in places
    assert (resource.plural, resource.is_namespaced) == (kind.plural, kind.is_namespaced)
    assert resource.type.__name__ == resource.kind


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ((), "/apis/g.io/v2/things"),
        (("ns",), "/apis/g.io/v2/namespaces/ns/things"),
        ((None, "a"), "/apis/g.io/v2/things/a"),
        (("ns", "a"), "/apis/g.io/v2/namespaces/ns/things/a"),
        (("ns", "a", "status"), "/apis/g.io/v2/namespaces/ns/things/a/status"),
    ],
)
def test_paths_of_a_group(arguments: tuple[Any, ...], path: str) -> None:
    assert _CUSTOM.path(*arguments) == path


def test_api_versions() -> None:
    assert (_CUSTOM.api_version, resources.PODS.api_version) == ("g.io/v2", "v1")


def test_a_partial_object_is_empty_unless_given() -> None:
    empty = PartialObject()
    assert (empty.api_version, empty.kind, empty.metadata.name) == ("", "", "")
