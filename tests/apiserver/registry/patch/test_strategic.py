"""Strategic merge patch: keyed lists, sets, and the directives."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.errors import BadRequestError, StatusError
from tests.apiserver.registry.patch.schemas import (
    CONFIG_MAP,
    DEPLOYMENT,
    POD,
    POD_SPEC,
    RUNTIME_CLASS,
    SERVICE,
    Map,
    strategic,
)
from tests.apiserver.registry.patch.test_merge import JSON

A = {"name": "a", "image": "1"}
B = {"name": "b", "image": "1"}
C = {"name": "c", "image": "1"}


def containers(present: list[Map], *changes: Map, **directives: Any) -> list[Map]:
    patch = {"containers": list(changes), **directives}
    merged: list[Map] = strategic(POD_SPEC, {"containers": present}, patch)["containers"]
    return merged


def named(items: list[Map]) -> str:
    return "".join(item["name"] for item in items)


def test_items_merge_by_their_key() -> None:
    merged = containers([A, B], {"name": "b", "image": "2", "stdin": True})
    assert merged == [A, {"name": "b", "image": "2", "stdin": True}]


def test_a_new_item_comes_first() -> None:
    assert named(containers([A, B], C)) == "cab"


def test_an_item_is_deleted_by_its_key() -> None:
    assert containers([A, B], {"name": "a", "$patch": "delete"}) == [B]
    assert containers([A], {"name": "zz", "$patch": "delete"}) == [A]


def test_an_item_or_the_whole_list_is_replaced() -> None:
    replacement = {"name": "b", "stdin": True, "$patch": "replace"}
    assert containers([A, B], replacement) == [A, {"name": "b", "stdin": True}]
    assert containers([A, B], C, {"$patch": "replace"}) == [C]


@pytest.mark.parametrize(
    ("present", "changes", "order", "result"),
    [
        ([A, B], [], "ba", "ba"),
        ([A, B], [C], "acb", "acb"),
        ([A, B, C], [], "cb", "acb"),
        ([A, B], [C], "c", "cab"),
        ([A, B], [], "bza", "ba"),
    ],
)
def test_the_order_is_what_the_client_saw(
    present: list[Map], changes: list[Map], order: str, result: str
) -> None:
    wanted = [{"name": name} for name in order]
    patch: Map = {"$setElementOrder/containers": wanted}
    if changes:
        patch["containers"] = changes
    assert named(strategic(POD_SPEC, {"containers": present}, patch)["containers"]) == result


def test_a_null_deletes_and_a_map_merges() -> None:
    before = {"metadata": {"name": "x", "labels": {"a": "1", "b": "2"}}, "data": {"k": "v"}}
    patch = {"metadata": {"labels": {"a": None, "c": "3"}}, "data": None}
    assert strategic(CONFIG_MAP, before, patch) == {
        "metadata": {"name": "x", "labels": {"b": "2", "c": "3"}}
    }


def test_a_map_is_replaced_or_deleted_whole() -> None:
    before = {"metadata": {"name": "x", "labels": {"a": "1"}}, "data": {"k": "v"}}
    replaced = strategic(CONFIG_MAP, before, {"data": {"n": "w", "$patch": "replace"}})
    assert replaced["data"] == {"n": "w"}
    deleted = strategic(CONFIG_MAP, before, {"metadata": {"labels": {"$patch": "delete"}}})
    assert not deleted["metadata"].get("labels")


def test_scalars_merge_as_a_set_where_the_api_says_so() -> None:
    before = {"metadata": {"name": "x", "finalizers": ["a/b", "c/d"]}}
    patch = {"metadata": {"finalizers": ["e/f", "a/b"]}}
    merged = strategic(POD, before, patch)["metadata"]["finalizers"]
    assert sorted(merged) == ["a/b", "c/d", "e/f"]
    gone = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["c/d"]}}
    assert strategic(POD, before, gone)["metadata"]["finalizers"] == ["a/b"]


def test_lists_without_key_are_replaced() -> None:
    before = {"spec": {"tolerations": [{"key": "a"}]}}
    patch = {"spec": {"tolerations": [{"key": "b"}]}}
    assert strategic(POD, before, patch) == patch


def test_only_the_retained_keys_stay() -> None:
    before = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    assert strategic(DEPLOYMENT, before, patch)["spec"]["strategy"] == {"type": "Recreate"}


def test_service_ports_merge_by_number_alone() -> None:
    before = {"spec": {"ports": [{"port": 80, "protocol": "TCP", "nodePort": 30000}]}}
    patch = {"spec": {"ports": [{"port": 80, "name": "http"}]}}
    assert strategic(SERVICE, before, patch)["spec"]["ports"] == [
        {"port": 80, "protocol": "TCP", "nodePort": 30000, "name": "http"}
    ]


def test_a_classs_selector_merges_and_its_tolerations_do_not() -> None:
    before = {
        "handler": "h",
        "scheduling": {"nodeSelector": {"a": "1"}, "tolerations": [{"key": "a"}]},
    }
    patch = {"scheduling": {"nodeSelector": {"b": "2"}, "tolerations": [{"key": "b"}]}}
    assert strategic(RUNTIME_CLASS, before, patch)["scheduling"] == {
        "nodeSelector": {"a": "1", "b": "2"},
        "tolerations": [{"key": "b"}],
    }


@pytest.mark.parametrize(
    ("patch", "says"),
    [
        ({"$patch": "bogus"}, "unknown patch type: bogus in map: map[$patch:bogus]"),
        (
            {"spec": {"containers": [{"image": "noname"}]}},
            "map: map[image:noname] does not contain declared merge key: name",
        ),
        (
            {"spec": {"strategy": {"$retainKeys": ["type"], "rollingUpdate": {}}}},
            "the list of retainKeys must contain all fields present in the patch",
        ),
    ],
)
def test_invalid_directive_is_rejected(patch: Map, says: str) -> None:
    type_name = DEPLOYMENT if "strategy" in patch.get("spec", {}) else POD
    with pytest.raises(StatusError) as refusal:
        strategic(type_name, {"spec": {"containers": [A]}}, patch)
    assert refusal.value.message == says
    assert refusal.value.status_code == 500


@pytest.mark.parametrize(
    ("patch", "what"),
    [
        ({"spec": {"$retainKeys": {"a": 1}}}, "retainKeys"),
        ({"spec": {"$retainKeys": [{}]}}, "retainKeys"),
        ({"metadata": {"$deleteFromPrimitiveList/finalizers": "a"}}, "primitive list"),
        ({"spec": {"$setElementOrder/containers": "a"}}, "setElementOrder list"),
        ({"spec": {"$setElementOrder/containers": ["a"], "containers": [A]}},
         "setElementOrder list"),
    ],
)  # fmt: skip
def test_directives_in_a_wrong_form_are_a_bad_request(patch: Map, what: str) -> None:
    with pytest.raises(BadRequestError, match=f"^invalid patch format of {what}$"):
        strategic(POD, {"spec": {"containers": [A]}}, patch)


def test_directives_are_never_stored() -> None:
    patch = {"spec": {"containers": [{**C, "env": [{"name": "x", "$patch": "merge"}]}],
                      "$setElementOrder/containers": [{"name": "c"}]}}  # fmt: skip
    assert "$" not in str(strategic(POD, {}, patch))


ITEMS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from("abcd")}, optional={"image": st.sampled_from("12")}
    ),
    max_size=4,
    unique_by=lambda item: item["name"],
)


@given(ITEMS, ITEMS)
def test_merging_twice_is_merging_once(present: list[Map], changes: list[Map]) -> None:
    once = strategic(POD_SPEC, {"containers": present}, {"containers": changes})
    assert strategic(POD_SPEC, once, {"containers": changes}) == once


@given(ITEMS, ITEMS)
def test_nothing_is_lost_and_nothing_doubled(present: list[Map], changes: list[Map]) -> None:
    merged = strategic(POD_SPEC, {"containers": present}, {"containers": changes})["containers"]
    names = [item["name"] for item in merged]
    assert sorted(names) == sorted({item["name"] for item in [*present, *changes]})


HOSTILE = st.recursive(
    JSON,
    lambda inner: st.dictionaries(
        st.sampled_from(["$patch", "$retainKeys", "$setElementOrder/containers", "containers",
                         "$deleteFromPrimitiveList/containers", "name", "volumes", "spec",
                         "$setElementOrder/finalizers", "finalizers", "metadata", "ports"]),
        inner | st.lists(inner, max_size=2), max_size=4,
    ),
    max_leaves=10,
)  # fmt: skip


@given(HOSTILE)
def test_no_patch_breaks_the_server(patch: Any) -> None:
    before = {
        "metadata": {"name": "p", "finalizers": ["a/b"]},
        "spec": {"containers": [A, B], "volumes": [{"name": "v", "emptyDir": {}}]},
    }
    untouched = copy.deepcopy(before)
    if not isinstance(patch, dict):
        return
    for shaped in (patch, {"spec": patch}, {"metadata": patch}):
        try:
            strategic(POD, before, shaped)
        except StatusError:
            continue
    assert before == untouched
