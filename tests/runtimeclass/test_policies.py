"""Effective policies: what several policies say together."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.meta import ObjectMeta
from moorage.api.runtime_group import (
    ClusterRuntimePolicy,
    ClusterRuntimePolicySpec,
    RuntimePolicy,
    RuntimePolicySpec,
)
from moorage.runtimeclass.isolation import LEVELS, Isolation
from moorage.runtimeclass.policies import (
    MODES,
    AllowList,
    DefaultClass,
    EffectivePolicy,
    Floor,
    effective_policy,
)

_CLASSES = ["a", "b", "c"]


def cluster(name: str, **spec: Any) -> ClusterRuntimePolicy:
    return ClusterRuntimePolicy(
        metadata=ObjectMeta(name=name), spec=ClusterRuntimePolicySpec(**spec)
    )


def own(name: str, **spec: Any) -> RuntimePolicy:
    return RuntimePolicy(
        metadata=ObjectMeta(name=name, namespace="team"), spec=RuntimePolicySpec(**spec)
    )


def test_without_policies_there_are_no_rules() -> None:
    assert effective_policy({}, [], []).is_empty
    other = cluster("c", namespace_selector={"matchLabels": {"a": "b"}}, allowed_classes=())
    assert effective_policy({}, [other], []).is_empty


def test_a_selector_chooses_namespaces_and_a_broken_one_all() -> None:
    selecting = cluster("c", namespace_selector={"matchLabels": {"a": "b"}}, allowed_classes=("a",))
    assert effective_policy({"a": "b"}, [selecting], []).allowed == AllowList(
        frozenset("a"), ("ClusterRuntimePolicy c",)
    )
    broken = {"matchExpressions": [{"key": "a", "operator": "Like"}]}
    assert effective_policy(
        {}, [cluster("c", namespace_selector=broken, allowed_classes=())], []
    ).allowed


def test_floor_and_allow_list_are_the_strictest_and_name_their_policies() -> None:
    policy = effective_policy(
        {},
        [cluster("c", minimum_isolation="user-space-kernel", allowed_classes=("a", "b"))],
        [own("o", minimum_isolation="shared-kernel", allowed_classes=("b", "c"))],
    )
    assert policy.floor == Floor(Isolation.USER_SPACE_KERNEL, ("ClusterRuntimePolicy c",))
    assert policy.allowed == AllowList(
        frozenset("b"), ("ClusterRuntimePolicy c", "RuntimePolicy team/o")
    )


def test_a_level_that_does_not_exist_is_above_all() -> None:
    policy = effective_policy({}, [], [own("o", minimum_isolation="quantum")])
    assert policy.floor is not None
    assert policy.floor.isolation is Isolation.CONFIDENTIAL_VIRTUAL_MACHINE


@pytest.mark.parametrize(
    ("clusters", "owns", "expected", "warned"),
    [
        ([("c", "a", False)], [], DefaultClass("a", "ClusterRuntimePolicy c"), ""),
        ([("c", "a", False)], [("o", "b", False)], DefaultClass("b", "RuntimePolicy team/o"), ""),
        ([("c", "a", False)], [("o", "b", True)],
         DefaultClass("b", "RuntimePolicy team/o", True), ""),
        # What the cluster enforces cannot be replaced by a weaker class.
        ([("c", "a", True)], [("o", "b", True)],
         DefaultClass("a", "ClusterRuntimePolicy c", True), ""),
        ([("d", "b", False), ("c", "a", False)], [], DefaultClass("a", "ClusterRuntimePolicy c"),
         "ClusterRuntimePolicy d, which comes later by name, has b"),
        ([("c", "a", False), ("d", "a", False)], [], DefaultClass("a", "ClusterRuntimePolicy c"),
         ""),
    ],
)  # fmt: skip
def test_the_default_is_the_nearest(
    clusters: list[Any], owns: list[Any], expected: DefaultClass, warned: str
) -> None:
    policy = effective_policy(
        {},
        [cluster(name, default_class_name=default, enforce_default=is_enforced)
         for name, default, is_enforced in clusters],
        [own(name, default_class_name=default, enforce_default=is_enforced)
         for name, default, is_enforced in owns],
    )  # fmt: skip
    assert policy.default == expected
    assert warned in "".join(policy.warnings)
    assert bool(policy.warnings) == bool(warned)


@pytest.mark.parametrize(
    ("clusters", "by_class", "owns", "mode"),
    [
        ([], "", [], "Warn"),
        ([], "Enforce", [], "Enforce"),
        ([], "nonsense", [], "Warn"),
        ([{"a": "Off"}], "Enforce", [], "Off"),
        ([{"*": "Off", "a": "Warn"}], "Enforce", [], "Warn"),
        ([{"a": "Off"}, {"*": "Enforce"}], "", [], "Enforce"),
        ([], "", [{"*": "Off"}], "Off"),
        # A namespace's policy weakens neither the cluster's nor the class's.
        ([], "Enforce", [{"a": "Off"}], "Enforce"),
        ([{"*": "Warn"}], "", [{"a": "Off"}], "Warn"),
        ([{"*": "Warn"}], "", [{"a": "Enforce"}], "Enforce"),
    ],
)
def test_checks_are_the_strictest(
    clusters: list[Any], by_class: str, owns: list[Any], mode: str
) -> None:
    policy = effective_policy(
        {},
        [cluster(f"c{number}", checks=checks) for number, checks in enumerate(clusters)],
        [own(f"o{number}", checks=checks) for number, checks in enumerate(owns)],
    )
    assert policy.mode("a", by_class) == mode


def test_needs_that_mean_nothing_or_contradict_are_a_problem() -> None:
    assert "RuntimePolicy team/o: unknown need 'gpus'" in (
        effective_policy({}, [], [own("o", needs=("gpus",))]).problem
    )
    policies = [own("o", needs=("network=none",)), own("p", needs=("host-network",))]
    assert effective_policy({}, [], policies).problem == (
        "RuntimePolicy team/o and RuntimePolicy team/p: network=none and host-network contradict "
        "each other"
    )


def test_texts_name_few_of_many_policies() -> None:
    needs = (("network=none",), ("host-network",))
    policies = [
        cluster(f"p{one:04}", default_class_name=f"c{one}", needs=needs[one % 2])
        for one in range(5000)
    ]
    policy = effective_policy({}, policies, [])
    assert policy.problem.startswith(
        "ClusterRuntimePolicy p0000, ClusterRuntimePolicy p0001, ClusterRuntimePolicy p0002 and "
        "4997 more policies: "
    )
    (warning,) = policy.warnings
    assert warning.endswith("ClusterRuntimePolicy p0001, which comes later by name, has c1, and "
                            "4998 more policies have other classes")  # fmt: skip


_SPECS = st.fixed_dictionaries(
    {
        "minimum_isolation": st.none() | st.sampled_from(list(LEVELS)),
        "allowed_classes": st.none() | st.lists(st.sampled_from(_CLASSES)).map(tuple),
        "default_class_name": st.none() | st.sampled_from(_CLASSES),
        "enforce_default": st.booleans(),
        "needs": st.lists(st.sampled_from(["gpu", "isolation=kernel"])).map(tuple),
        "checks": st.dictionaries(st.sampled_from([*_CLASSES, "*"]), st.sampled_from(MODES)),
    }
)
_POLICIES = st.lists(
    st.tuples(st.booleans(), st.sampled_from(["p", "q", "r", "s"]), _SPECS),
    max_size=5,
    unique_by=lambda each: each[:2],
)


def _effective(policies: list[Any]) -> EffectivePolicy:
    return effective_policy(
        {},
        [cluster(name, **spec) for is_cluster, name, spec in policies if is_cluster],
        [own(name, **spec) for is_cluster, name, spec in policies if not is_cluster],
    )


@given(_POLICIES, st.randoms(use_true_random=False))
def test_the_order_of_policies_does_not_matter(policies: list[Any], chance: Any) -> None:
    shuffled = list(policies)
    chance.shuffle(shuffled)
    assert _effective(shuffled) == _effective(policies)


@given(_POLICIES.filter(bool))
def test_one_more_policy_only_makes_rules_stricter(policies: list[Any]) -> None:
    more, fewer = _effective(policies), _effective(policies[:-1])
    if fewer.floor is not None:
        assert more.floor is not None
        assert more.floor.isolation >= fewer.floor.isolation
    if fewer.allowed is not None:
        assert more.allowed is not None
        assert more.allowed.classes <= fewer.allowed.classes
    if fewer.default is not None and fewer.default.is_enforced:
        assert more.default is not None
        assert more.default.is_enforced
    assert more.needs.features >= fewer.needs.features


@given(_POLICIES, st.sampled_from(_CLASSES), st.sampled_from(["", *MODES]), _SPECS)
def test_a_namespace_never_weakens_what_the_cluster_checks(
    policies: list[Any], name: str, by_class: str, spec: Any
) -> None:
    clusters = [one for one in policies if one[0]]
    before = _effective(clusters)
    after = _effective([*clusters, (False, "z", spec)])
    if by_class or before.cluster_modes.of(name):
        assert MODES.index(after.mode(name, by_class)) >= MODES.index(before.mode(name, by_class))
    enforced = before.default
    if enforced is not None and enforced.is_enforced:
        assert after.default == enforced
