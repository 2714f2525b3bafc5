"""Placing by handler: which labels a pod requires, when it is held, and which nodes it may use."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.meta import ObjectMeta
from moorage.api.nodes import Node, matches_node
from moorage.api.pods import MIRROR_ANNOTATION, PodSpec
from moorage.api.runtime_group import (
    HANDLER_GATE,
    HELD_FOR_ANNOTATION,
    PLACING_ANNOTATION,
    feature_label,
    handler_label,
)
from moorage.runtimeclass.class_index import ClassIndex
from moorage.runtimeclass.demands import demanded_features
from moorage.runtimeclass.needs import NO_NEEDS, parse_needs
from moorage.runtimeclass.placing import (
    LEFT_ALONE,
    Placement,
    has_gate,
    held_needs,
    hold,
    is_placeable,
    place,
    require_labels,
    requires_label,
)
from moorage.runtimeclass.usable_nodes import REQUIRED, usable_nodes
from tests.runtimeclass.indexes import index_of, node, profile, runtime_class

KATA = handler_label("kata")
GPU = feature_label("kata", "gpu")
Json = dict[str, Any]


def labelled(name: str, *keys: str, handlers: tuple[str, ...] = (), **more: str) -> Any:
    return node(name, *handlers, labels={**dict.fromkeys(keys, "true"), **more})


def required(*terms: Json) -> Json:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


def on_node(name: str) -> Json:
    fields = [{"key": "metadata.name", "operator": "In", "values": [name]}]
    return required({"matchFields": fields})


def placed(index: ClassIndex, spec: Json | None = None, needs: str = "") -> Placement:
    offer = index.find("kata")
    assert offer is not None
    parsed = parse_needs(needs) if needs else NO_NEEDS
    return place(spec or {}, offer, index, parsed, demanded_features(spec or {}))


def cluster(*more: Any, **fields: Any) -> ClassIndex:
    """Two nodes with agents, of which one has Kata."""
    return index_of(
        labelled("a", KATA, handlers=("runc", "kata"), pool="box"),
        labelled("b", handlers=("runc",), pool="plain"),
        profile("a", "kata"), profile("a", "runc"), profile("b", "runc"),
        runtime_class("kata", **fields), *more,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "is_held"),
    [
        ({}, False),
        ({"nodeSelector": {"pool": "box"}}, False),
        ({"nodeSelector": {"pool": "plain"}}, True),
        (on_node("a"), False),
        (on_node("b"), True),
        (required({"matchExpressions": [{"key": "pool", "operator": "NotIn", "values": ["box"]}]}),
         True),
        # Our own label is what is waited for, not a restriction on the nodes.
        ({"nodeSelector": {KATA: "true"}}, False),
        ({"nodeSelector": {KATA: "true", "pool": "plain"}}, True),
    ],
)  # fmt: skip
def test_a_pod_is_held_where_no_node_that_it_may_use_has_the_handler(
    spec: Json, is_held: bool
) -> None:
    placement = placed(cluster(), spec)
    assert (placement.labels, placement.is_held) == ((KATA,), is_held)
    assert ("waiting for a node with the handler" in placement.message) is is_held


def test_the_selector_of_the_class_counts() -> None:
    assert placed(cluster(selector={"pool": "plain"})).is_held
    assert not placed(cluster(selector={"pool": "box"})).is_held


def test_not_known_is_not_the_same_as_none() -> None:
    # No agent reports anything.
    assert placed(index_of(node("a", "runc"), runtime_class("kata"))) == LEFT_ALONE
    # Of one node nothing is known, such as of one of another operating system.
    index = index_of(node("a", "runc"), profile("a", "runc"), node("b"), runtime_class("kata"))
    assert placed(index) == LEFT_ALONE


def test_a_node_without_an_agent_whose_engine_lists_other_handlers_is_known_to_lack_it() -> None:
    index = index_of(node("a"), profile("a", "runc"), node("b", "runhcs"), runtime_class("kata"))
    assert placed(index).is_held
    index.put_node(node("b", "kata"))
    assert placed(index) == LEFT_ALONE


def test_a_pod_that_may_use_no_node_is_left_to_scheduler_and_autoscaler() -> None:
    assert placed(cluster(), {"nodeSelector": {"pool": "empty"}}) == LEFT_ALONE
    assert placed(cluster(), on_node("gone")) == LEFT_ALONE


def test_a_class_can_opt_out() -> None:
    index = cluster()
    meta = ObjectMeta(name="kata", annotations={PLACING_ANNOTATION: "disabled"})
    index.put_class(msgspec.structs.replace(runtime_class("kata"), metadata=meta))
    assert placed(index, on_node("b")) == LEFT_ALONE


def test_needed_features_are_required_where_a_node_has_them() -> None:
    index = cluster(labelled("c", KATA, GPU), profile("c", "kata", has=["gpu"]))
    assert placed(index, needs="gpu").labels == (KATA, GPU)
    # Capabilities have no labels.
    assert placed(index, needs="capability-sys-boot").labels == (KATA,)
    # Whether the only node has it is unknown.
    assert placed(cluster(), needs="gpu").labels == (KATA,)
    index = cluster(profile("a", "kata", lacks=["gpu"]))
    held = placed(index, needs="gpu")
    assert held.is_held
    assert held.message == (
        "waiting for a node on which RuntimeClass kata has gpu, which the pod needs: no node "
        'with the handler "kata" that the pod may use has it'
    )


def test_what_fields_ask_for_steers_where_only_some_nodes_have_it() -> None:
    spec = {"hostNetwork": True}
    key = feature_label("kata", "host-network")
    index = cluster(labelled("c", KATA, key), profile("c", "kata", has=["host-network"]))
    assert placed(index, spec).labels == (KATA,)
    index.put_profile(profile("a", "kata", lacks=["host-network"]))
    assert placed(index, spec).labels == (KATA, key)


def test_labels_go_into_every_term_but_the_empty_ones() -> None:
    spec = required(
        {"matchExpressions": [{"key": "x", "operator": "Exists"}]},
        {},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]},
    )
    spec["affinity"]["podAffinity"] = {"x": 1}
    before = copy.deepcopy(spec)
    changed = dict(spec)
    require_labels(changed, [KATA])
    assert spec == before
    ours = {"key": KATA, "operator": "In", "values": ["true"]}
    terms = changed["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert terms == [
        {"matchExpressions": [{"key": "x", "operator": "Exists"}, ours]},
        {},
        {**before["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"][2],
         "matchExpressions": [ours]},
    ]  # fmt: skip
    assert changed["affinity"]["podAffinity"] == {"x": 1}


def test_a_label_counts_as_required_where_no_term_goes_without_it() -> None:
    ours = {"key": KATA, "operator": "In", "values": ["true"]}
    plain = {"matchExpressions": [{"key": "x", "operator": "Exists"}]}
    with_ours = {"matchExpressions": [*plain["matchExpressions"], ours]}
    assert requires_label({"nodeSelector": {KATA: "true"}}, KATA)
    assert not requires_label({"nodeSelector": {KATA: "false"}}, KATA)
    assert requires_label(required(with_ours, {}), KATA)
    assert not requires_label(required(with_ours, plain), KATA)
    assert not requires_label({}, KATA)
    assert not requires_label(
        required({"matchExpressions": [{**ours, "operator": "Exists"}]}), KATA
    )


def test_very_many_terms_get_a_node_selector_instead() -> None:
    spec = required(*[{"matchExpressions": [{"key": "x", "operator": "Exists"}]}] * 1001)
    require_labels(spec, [KATA])
    assert spec["nodeSelector"] == {KATA: "true"}


def test_the_gate_is_added_once_beside_others() -> None:
    metadata: Json = {}
    spec: Json = {"schedulingGates": [{"name": "example.com/quota"}]}
    for _ in range(2):
        hold(metadata, spec, parse_needs("gpu isolation=kernel"))
    assert spec["schedulingGates"] == [{"name": "example.com/quota"}, {"name": HANDLER_GATE}]
    assert metadata["annotations"] == {HELD_FOR_ANNOTATION: "gpu"}
    assert has_gate(spec)
    assert held_needs(metadata["annotations"]) == parse_needs("gpu")
    assert held_needs({HELD_FOR_ANNOTATION: "nonsense"}) == NO_NEEDS


def test_pods_of_the_system_and_pods_on_a_node_are_not_placed() -> None:
    assert is_placeable("team", {}, {})
    assert not is_placeable("kube-system", {}, {})
    assert not is_placeable("team", {}, {"nodeName": "a"})
    assert not is_placeable("team", {"annotations": {MIRROR_ANNOTATION: "x"}}, {})


_KEYS, _VALUES = ("x", "y"), ("1", "2", "word")
_requirements = st.builds(
    lambda key, operator, values: {"key": key, "operator": operator, "values": values},
    st.sampled_from(_KEYS),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Odd"]),
    st.lists(st.sampled_from(_VALUES), max_size=2),
)
_fields = st.builds(
    lambda operator, values: {"key": "metadata.name", "operator": operator, "values": values},
    st.sampled_from(["In", "NotIn"]),
    st.lists(st.sampled_from(["n0", "n1"]), min_size=1, max_size=1),
)
_terms = st.builds(
    lambda expressions, fields: {"matchExpressions": expressions, "matchFields": fields},
    st.lists(_requirements, max_size=3),
    st.lists(_fields, max_size=1),
)
_specs = st.builds(
    lambda selector, terms: {"nodeSelector": selector, **(required(*terms) if terms else {})},
    st.dictionaries(st.sampled_from(_KEYS), st.sampled_from(_VALUES), max_size=1),
    st.lists(_terms, max_size=3),
)
_labels = st.dictionaries(st.sampled_from((*_KEYS, KATA)), st.sampled_from((*_VALUES, "true")))


@given(_specs, st.lists(_labels, max_size=4))
def test_usable_nodes_are_those_that_the_scheduler_would_match(
    spec: Json, all_labels: list[dict[str, str]]
) -> None:
    nodes = [node(f"n{number}", labels=labels) for number, labels in enumerate(all_labels)]
    index = index_of(*nodes)
    found = usable_nodes(spec, {}, index.nodes, with_own_labels=True)
    typed = msgspec.convert(spec, PodSpec)
    for one in nodes:
        is_matched = matches_node(typed, Node(metadata=one.metadata))
        assert bool(found & index.nodes.named(one.metadata.name)) == is_matched


@given(_specs, _labels)
def test_required_labels_exclude_other_nodes_and_admit_no_more(
    spec: Json, labels: dict[str, str]
) -> None:
    somewhere = Node(metadata=ObjectMeta(name="n0", labels=labels))
    changed = dict(spec)
    require_labels(changed, [KATA])
    again = dict(changed)
    require_labels(again, [KATA])
    assert again == changed
    assert requires_label(changed, KATA)
    was = matches_node(msgspec.convert(spec, PodSpec), somewhere)
    now = matches_node(msgspec.convert(changed, PodSpec), somewhere)
    assert now == (was and labels.get(KATA) == "true")


def test_what_a_pod_brings_does_not_replace_what_it_is_held_for() -> None:
    metadata: Json = {"annotations": {HELD_FOR_ANNOTATION: "terminal", "a": "b"}}
    hold(metadata, {}, parse_needs("gpu"))
    assert held_needs(metadata["annotations"]) == parse_needs("gpu")
    hold(metadata, {}, NO_NEEDS)
    assert metadata["annotations"] == {"a": "b"}


@pytest.mark.parametrize("operator", ["Exists", "DoesNotExist", "Gt", "Lt", "In", "NotIn"])
def test_affinity_that_takes_long_to_evaluate_leaves_all_nodes_usable(operator: str) -> None:
    nodes = [node(f"n{one}", labels={"kubernetes.io/hostname": f"n{one}"}) for one in range(200)]
    index = index_of(*nodes)
    values = [f"v{one}" for one in range(200)] if operator in ("In", "NotIn") else []
    values = ["1"] if operator in ("Gt", "Lt") else values
    term = {"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": operator, "values": values}
    ]}  # fmt: skip
    few = usable_nodes(required(term), {}, index.nodes)
    assert few == (index.nodes.existing if operator in ("Exists", "NotIn") else 0)
    many = usable_nodes(required(*[term] * 120), {}, index.nodes)
    assert many == index.nodes.existing
