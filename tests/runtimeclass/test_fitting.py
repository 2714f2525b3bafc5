"""Choice of a class, and what is found against it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.meta import ObjectMeta
from moorage.api.runtime_group import MEASUREMENT_LABEL, NEEDS_ANNOTATION, PROBE_LABEL, RuntimeClass
from moorage.runtimeclass.class_choice import KEPT, ChoiceRefusal, choose_class
from moorage.runtimeclass.class_index import ClassIndex
from moorage.runtimeclass.demands import demands
from moorage.runtimeclass.isolation import LEVELS
from moorage.runtimeclass.needs import NeedsError, parse_needs
from moorage.runtimeclass.pod_review import review_pod
from moorage.runtimeclass.policies import EffectivePolicy, effective_policy
from moorage.runtimeclass.requirements import (
    Requirements,
    accepted_nodes,
    is_permitted,
    nodes_for,
    shortlisted,
)
from tests.runtimeclass.indexes import index_of, node, profile, runtime_class, three_runtimes
from tests.runtimeclass.test_policies import cluster, own

_NO_POLICY = EffectivePolicy()


def pod(needs: str = "", **spec: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    container = {"name": "c", "image": "i", **spec.pop("container", {})}
    metadata = {"annotations": {NEEDS_ANNOTATION: needs} if needs else {}}
    return metadata, {"containers": [container], **spec}


def chosen(
    needs: str, index: ClassIndex, policy: EffectivePolicy = _NO_POLICY, **spec: Any
) -> str | None:
    return choose_class(*pod(needs, **spec), {}, policy, index).class_name


@pytest.mark.parametrize(
    ("needs", "spec", "name"),
    [
        ("isolation=shared-kernel", {}, "runc"),
        ("isolation=kernel", {}, "gvisor"),
        ("isolation=virtual-machine", {}, "kata"),
        ("terminal", {}, "runc"),
        ("network=none", {}, "gvisor"),
        ("gpu isolation=kernel", {}, "kata"),
        # What the fields ask for counts too; what is unknown of Kata does not exclude it.
        ("isolation=kernel", {"container": {"securityContext": {"privileged": True}}}, "kata"),
        ("terminal", {"hostNetwork": True}, "runc"),
    ],
)
def test_the_cheapest_class_that_fits_is_chosen(needs: str, spec: Any, name: str) -> None:
    assert chosen(needs, three_runtimes(), **spec) == name


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("moorage-probe-runc.n1", {PROBE_LABEL: "agent-n1"}),
        ("moorage-probe-runc.n1", {}),
        ("a-measurement", {MEASUREMENT_LABEL: "1"}),
    ],
)
def test_classes_of_probes_and_measurements_are_given_to_no_pod(
    name: str, labels: dict[str, str]
) -> None:
    # It would be the cheapest: by name among those without overhead.
    temporary = RuntimeClass(metadata=ObjectMeta(name=name, labels=labels), handler="runc")
    index = index_of(
        node("n1", "runc"),
        profile("n1", "runc", has=["terminal"], isolation="shared-kernel"),
        runtime_class("runc", overhead={"memory": "1Mi"}),
        temporary,
    )
    assert chosen("terminal", index) == "runc"
    assert index.find(name) is not None
    index.remove_class("runc")
    with pytest.raises(ChoiceRefusal, match="there are no classes"):
        chosen("terminal", index)
    default = effective_policy({}, [cluster("d", default_class_name=name)], [])
    with pytest.raises(ChoiceRefusal, match="is a temporary one of probes or measurements"):
        chosen("", index, default)


@pytest.mark.parametrize(
    ("needs", "spec", "said"),
    [
        ("isolation=confidential-virtual-machine", {}, "kata: its isolation is virtual-machine"),
        ("privileged isolation=kernel", {}, "kata: whether it has privileged is unknown"),
        ("isolation=kernel", {"hostNetwork": True},
         "gvisor: it lacks host-network, which spec.hostNetwork asks for"),
        ("terminal", {"container": {"resources": {"requests": {"cpu": "5"}}}},
         "gvisor: no node has room for cpu 5010m, overhead included"),
        ("terminal", {"nodeSelector": {"a": "b"}},
         "runc: no node that the pod's nodeSelector or nodeName accepts has its handler"),
        ("terminal", {"nodeName": "n9"}, "runc: no node that the pod's nodeSelector"),
        ("network=none", {"hostNetwork": True},
         "network=none and spec.hostNetwork contradict each other"),
        ("gpus", {}, "unknown need 'gpus'"),
    ],
)  # fmt: skip
def test_a_refusal_says_what_each_class_lacks(needs: str, spec: Any, said: str) -> None:
    with pytest.raises(ChoiceRefusal) as refusal:
        chosen(needs, three_runtimes(), **spec)
    assert said in str(refusal.value)


def test_there_may_be_no_classes_and_no_nodes() -> None:
    with pytest.raises(ChoiceRefusal, match="there are no classes"):
        chosen("gpu", ClassIndex())
    with pytest.raises(ChoiceRefusal, match=r'a: .*no node has its handler "a"'):
        chosen("isolation=kernel", index_of(runtime_class("a", isolation="virtual-machine")))


def test_a_broken_handler_is_not_chosen() -> None:
    index = index_of(
        runtime_class("a", isolation="virtual-machine"),
        node("n1", "a"),
        profile("n1", "a", works="False"),
    )
    with pytest.raises(ChoiceRefusal, match="no node has its handler"):
        chosen("isolation=kernel", index)


def test_many_classes_are_not_all_listed() -> None:
    index = index_of(node("n1"), *(runtime_class(f"class-{n:03}") for n in range(300)))
    with pytest.raises(ChoiceRefusal, match="and 292 more") as refusal:
        chosen("gpu", index)
    assert len(str(refusal.value)) < 4000


def test_a_feature_of_some_nodes_needs_their_label() -> None:
    things: list[Any] = [
        runtime_class("a"),
        node("n1", "a"),
        profile("n1", "a", lacks=["gpu"], has=["terminal"]),
        profile("n2", "a", has=["gpu", "terminal"]),
    ]
    with pytest.raises(ChoiceRefusal, match=r"has the label a\.runtime\.moorage\.dev/gpu"):
        chosen("gpu", index_of(*things, node("n2", "a")))
    labelled = index_of(*things, node("n2", "a", labels={"a.runtime.moorage.dev/gpu": "true"}))
    choice = choose_class(*pod("gpu"), {}, _NO_POLICY, labelled)
    assert choice.node_selector == {"a.runtime.moorage.dev/gpu": "true"}
    # And with a field that some nodes are known to lack.
    choice = choose_class(
        *pod("terminal", container={"resources": {"limits": {"nvidia.com/gpu": "1"}}}), {},
        _NO_POLICY, labelled,
    )  # fmt: skip
    assert choice.node_selector == {"a.runtime.moorage.dev/gpu": "true"}


def test_policies_bound_what_is_chosen() -> None:
    index = three_runtimes()
    floor = effective_policy({}, [cluster("c", minimum_isolation="virtual-machine")], [])
    assert chosen("terminal", index, floor) == "kata"
    excluding = effective_policy({}, [], [own("o", allowed_classes=("runc",))])
    with pytest.raises(ChoiceRefusal, match="gvisor: RuntimePolicy team/o do"):
        chosen("isolation=kernel", index, excluding)


_NAMES = ["runc", "gvisor", "kata"]
_NEEDS = ["gpu", "terminal", "host-network", "network=none", "isolation=kernel",
          *(f"isolation={level}" for level in LEVELS)]  # fmt: skip
_RULES = st.fixed_dictionaries(
    {
        "minimum_isolation": st.none() | st.sampled_from(list(LEVELS)),
        "allowed_classes": st.none() | st.lists(st.sampled_from(_NAMES)).map(tuple),
        "default_class_name": st.none() | st.sampled_from([*_NAMES, "gone"]),
    }
)
_SPEC = st.fixed_dictionaries(
    {"containers": st.just([{"name": "c", "tty": True}])},
    optional={"hostNetwork": st.booleans(), "nodeSelector": st.just({"a": "b"})},
)


@given(st.sampled_from([*_NAMES, "gone", "legacy"]), _SPEC, _RULES)
def test_an_explicit_class_is_never_changed(name: str, spec: Any, rules: Any) -> None:
    policy = effective_policy({}, [cluster("c", **rules)], [])
    spec = {**spec, "runtimeClassName": name}
    assert choose_class({}, spec, {}, policy, three_runtimes()) == KEPT


@given(st.lists(st.sampled_from(_NEEDS), max_size=3), _SPEC, _RULES)
def test_what_is_fitted_satisfies_needs_fields_floor_and_allow_list(
    words: list[str], spec: Any, rules: Any
) -> None:
    index = three_runtimes()
    policy = effective_policy({}, [cluster("c", **rules)], [])
    metadata = {"annotations": {NEEDS_ANNOTATION: " ".join(words)}}
    try:
        choice = choose_class(metadata, spec, {}, policy, index)
    except ChoiceRefusal:
        return
    if choice.how != "fitted":
        assert not words
        return
    assert choice.class_name is not None
    offer = index.find(choice.class_name)
    assert offer is not None
    needs = parse_needs(" ".join(words))
    assert needs.isolation is None or (offer.isolation or 0) >= needs.isolation
    assert all(offer.supported.get(feature, 0) & offer.nodes for feature in needs.features)
    assert not any(offer.unsupported.get(one.feature) for one in demands(spec))
    chosen_spec = {**spec, "runtimeClassName": choice.class_name}
    assert review_pod(metadata, chosen_spec, policy, index) == ()


@given(st.lists(st.sampled_from(_NEEDS), max_size=2), _SPEC, _RULES, st.integers(0, 2))
def test_the_shortlist_leaves_out_no_class_that_has_a_node(
    words: list[str], spec: Any, rules: Any, flaps: int
) -> None:
    index = three_runtimes()
    policy = effective_policy({}, [cluster("c", **rules)], [])
    try:
        needs = parse_needs(" ".join(words))
    except NeedsError:
        return
    requirements = Requirements(accepted_nodes(spec, index), demands(spec), needs, policy)
    for flap in range(flaps + 1):
        # What was asked before says nothing after a change.
        index.put_profile(
            profile("n1", "runc", has=["gpu"] if flap % 2 else [], isolation="shared-kernel")
        )
        listed = [offer.name for offer in shortlisted(requirements, index)]
        fitting = [
            offer.name for offer in index.offers().values() if nodes_for(offer, requirements, index)
        ]
        assert [name for name in listed if name in fitting] == fitting
        assert all(
            is_permitted(offer, policy) for offer in index.offers().values() if offer.name in listed
        )


@given(st.sampled_from([None, *_NAMES]), _SPEC, _RULES)
def test_the_classes_that_a_refusal_names_would_pass(
    name: str | None, spec: Any, rules: Any
) -> None:
    index = three_runtimes()
    policy = effective_policy({}, [cluster("c", **rules)], [own("o", checks={"*": "Enforce"})])
    spec = spec if name is None else {**spec, "runtimeClassName": name}
    for objection in review_pod({}, spec, policy, index):
        assert name not in objection.classes
        for other in objection.classes:
            assert review_pod({}, {**spec, "runtimeClassName": other}, policy, index) == ()
