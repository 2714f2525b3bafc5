"""Objects of an attachment: in the order of their installation, each labelled as ours."""

from __future__ import annotations

import pytest

from moorage.attach.manifests import objects
from moorage.attach.manifests.identity import MOORAGE, PART_OF_LABEL
from moorage.attach.values import Values


def test_every_object_is_labelled_as_part_of_moorage() -> None:
    for obj in objects(Values()):
        assert obj["metadata"]["labels"][PART_OF_LABEL] == MOORAGE


def test_names_are_unique_within_a_kind_and_namespace() -> None:
    made = objects(Values())
    names = {
        (obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"]) for obj in made
    }
    assert len(names) == len(made)


def test_the_namespace_is_first_and_can_be_left_to_another_program() -> None:
    assert objects(Values())[0]["kind"] == "Namespace"
    left = objects(Values(create_namespace=False))
    namespaces = {obj["metadata"]["name"] for obj in left if obj["kind"] == "Namespace"}
    # Those of probes are always ours.
    assert namespaces == {"moorage-probes"}


def test_the_namespace_allows_the_agents_host_directories() -> None:
    labels = objects(Values())[0]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"


@pytest.mark.parametrize("excluded", [(), ("a", "b")])
def test_the_systems_and_our_own_namespace_are_left_alone(excluded: tuple[str, ...]) -> None:
    values = Values(excluded_namespaces=excluded)
    assert values.unguarded_namespaces == (
        "kube-system",
        "moorage-system",
        "moorage-probes",
        *excluded,
    )
