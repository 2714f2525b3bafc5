"""Every kind that is served, held to what discovery and clients expect of it."""

from __future__ import annotations

import pytest

from moorage.apiserver.registry.kind import ALL_VERBS, Kind, by_resource
from moorage.apiserver.registry.kinds import ALL_KINDS, STORED_KINDS
from moorage.apiserver.registry.schema import load_schema

SCHEMA = load_schema()
_OTHER_VIEWS = ("events.k8s.io", "metrics.k8s.io")
KINDS = {kind.name if kind.group in _OTHER_VIEWS else kind.plural: kind for kind in ALL_KINDS}


@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.name)
def test_a_kinds_types_are_known(kind: Kind) -> None:
    for served in kind.served:
        assert SCHEMA[served.type]
    for part in kind.subresources.values():
        if part.type:
            assert SCHEMA[part.type]


@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.name)
def test_verbs_are_listed_in_discoverys_order(kind: Kind) -> None:
    assert list(kind.verbs) == sorted(kind.verbs)
    assert set(kind.verbs) <= set(ALL_VERBS)
    for part in kind.subresources.values():
        assert list(part.verbs) == sorted(part.verbs)


def test_no_two_kinds_share_a_place() -> None:
    served = [
        (version.group, version.version, kind.plural)
        for kind in ALL_KINDS
        for version in kind.served
    ]
    assert len(served) == len(set(served)) == len(by_resource(ALL_KINDS))
    tables = [kind.table for kind in STORED_KINDS]
    assert len(tables) == len(set(tables))
    assert not any(a != b and f"{a}/".startswith(f"{b}/") for a in tables for b in tables)


@pytest.mark.parametrize(
    ("plural", "short_names", "categories", "is_namespaced"),
    [
        ("pods", ("po",), ("all",), True),
        ("nodes", ("no",), (), False),
        ("namespaces", ("ns",), (), False),
        ("configmaps", ("cm",), (), True),
        ("secrets", (), (), True),
        ("serviceaccounts", ("sa",), (), True),
        ("services", ("svc",), ("all",), True),
        ("endpoints", ("ep",), (), True),
        ("events", ("ev",), (), True),
        ("deployments", ("deploy",), ("all",), True),
        ("replicasets", ("rs",), ("all",), True),
        ("runtimeclasses", (), (), False),
        ("leases", (), (), True),
        ("priorityclasses", ("pc",), (), False),
        ("clusterroles", (), (), False),
        ("endpointslices", (), (), True),
        ("persistentvolumes", ("pv",), (), False),
        ("persistentvolumeclaims", ("pvc",), (), True),
        ("storageclasses", ("sc",), (), False),
        ("volumeattributesclasses", ("vac",), (), False),
        ("csistoragecapacities", (), (), True),
    ],
)
def test_names_that_people_type(
    plural: str, short_names: tuple[str, ...], categories: tuple[str, ...], is_namespaced: bool
) -> None:
    kind = KINDS[plural]
    assert kind.short_names == short_names
    assert kind.categories == categories
    assert kind.is_namespaced is is_namespaced


def test_a_namespace_is_not_deleted_in_bulk() -> None:
    assert "deletecollection" not in KINDS["namespaces"].verbs


def test_kinds_that_an_update_may_create() -> None:
    assert {kind.plural for kind in STORED_KINDS if kind.strategy.may_create_on_update} == {
        "runtimeclasses", "roles", "rolebindings", "clusterroles", "clusterrolebindings", "leases",
        "limitranges", "events", "services", "endpoints",
    }  # fmt: skip


def test_kinds_that_need_a_revision_on_update() -> None:
    assert {kind.plural for kind in STORED_KINDS if kind.strategy.needs_revision_on_update} == {
        "runtimeclasses", "leases", "poddisruptionbudgets", "csidrivers", "csinodes",
        "csistoragecapacities", "volumeattachments", "customresourcedefinitions", "apiservices",
        "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
        "mutatingwebhookconfigurations", "validatingadmissionpolicies",
        "validatingadmissionpolicybindings", "validatingwebhookconfigurations",
        "storageversionmigrations", "devicetaintrules", "clustertrustbundles",
        "podcertificaterequests",
    }  # fmt: skip


def test_whose_deletion_answers_with_the_object() -> None:
    assert {kind.plural for kind in STORED_KINDS if kind.strategy.returns_deleted} == {
        "pods", "services", "serviceaccounts", "namespaces", "persistentvolumes",
        "persistentvolumeclaims", "podtemplates", "resourcequotas", "csidrivers", "csinodes",
        "storageclasses", "volumeattachments", "volumeattributesclasses", "deviceclasses",
        "resourceclaims", "resourceclaimtemplates", "resourceslices",
    }  # fmt: skip


def test_whose_deletion_orphans_by_default() -> None:
    assert {
        kind.plural for kind in STORED_KINDS if kind.strategy.default_propagation == "Orphan"
    } == {"jobs", "replicationcontrollers"}


def test_whose_generation_counts() -> None:
    assert {kind.plural for kind in STORED_KINDS if kind.strategy.spec_of is not None} == {
        "pods", "podtemplates", "deployments", "replicasets", "daemonsets", "statefulsets",
        "replicationcontrollers", "jobs", "cronjobs", "poddisruptionbudgets", "endpointslices",
        "priorityclasses", "ingresses", "ingressclasses", "networkpolicies",
        "customresourcedefinitions", "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings", "mutatingwebhookconfigurations",
        "validatingadmissionpolicies", "validatingadmissionpolicybindings",
        "validatingwebhookconfigurations", "flowschemas", "prioritylevelconfigurations",
        "deviceclasses", "devicetaintrules", "resourceslices", "csidrivers",
    }  # fmt: skip
