"""Definitions of our own group, compared with the structs and the vocabulary of the code."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from moorage.api.meta import Raw
from moorage.api.runtime_group import GROUP, VERSION
from moorage.runtimeclass.features import CAPABILITIES, FEATURES, capability_feature
from moorage.runtimeclass.isolation import LEVELS
from moorage.runtimes.custom_resources import definitions
from moorage.runtimes.custom_resources.definitions import definition_names
from moorage.wire.client import resources

_OURS = {
    resource.plural: resource
    for resource in vars(resources).values()
    if isinstance(resource, resources.Resource) and resource.group == GROUP
}


@pytest.mark.parametrize("definition", definitions(), ids=lambda each: each["metadata"]["name"])
def test_each_definition_has_a_resource_of_the_client(definition: Raw) -> None:
    spec = definition["spec"]
    resource = _OURS[spec["names"]["plural"]]
    assert (spec["group"], spec["names"]["kind"]) == (resource.group, resource.kind)
    assert [version["name"] for version in spec["versions"]] == [VERSION]
    assert (spec["scope"] == "Namespaced") == resource.is_namespaced
    assert definition["metadata"]["name"] == f"{resource.plural}.{GROUP}"


def test_each_resource_of_the_client_has_a_definition() -> None:
    assert {definition["spec"]["names"]["plural"] for definition in definitions()} == set(_OURS)


def test_isolation_levels_of_the_definitions_are_those_of_the_rules() -> None:
    for definition in definitions():
        for levels in _enumerations(definition):
            if "shared-kernel" in levels:
                assert [level for level in levels if level] == list(LEVELS)


def _enumerations(value: object) -> list[list[str]]:
    if isinstance(value, dict):
        own = [value["enum"]] if isinstance(value.get("enum"), list) else []
        return own + [found for part in value.values() for found in _enumerations(part)]
    return []


def test_names_of_features_can_be_node_labels() -> None:
    assert all(re.fullmatch("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name) for name in FEATURES)


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_each_capability_is_a_feature_in_both_spellings(capability: str) -> None:
    assert capability_feature(capability) in FEATURES
    assert capability_feature(f"CAP_{capability}") == capability_feature(capability)


@pytest.mark.parametrize("definition", definitions(), ids=lambda each: each["metadata"]["name"])
def test_every_field_is_explained_and_every_kind_has_a_short_name(definition: Raw) -> None:
    """So `kubectl explain` says something of each."""
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert list(_unexplained(schema, "")) == []
    assert definition["spec"]["names"]["shortNames"]


def _unexplained(schema: Raw, path: str) -> Iterator[str]:
    if not schema.get("description"):
        yield path
    for name, inner in schema.get("properties", {}).items():
        yield from _unexplained(inner, f"{path}.{name}")
    items = schema.get("items", {})
    for name, inner in items.get("properties", {}).items():
        yield from _unexplained(inner, f"{path}[].{name}")


def test_each_file_has_the_name_of_its_definition() -> None:
    names = {definition["metadata"]["name"] for definition in definitions()}
    assert definition_names() == names
