"""Sets of fields, held to the laws of sets."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.apiserver.registry.patch.fieldset import (
    SELF,
    Tree,
    difference,
    element_text,
    in_order,
    intersection,
    is_tree,
    paths,
    union,
    without_subtrees,
)

PATHS = st.lists(st.sampled_from(["f:a", "f:b", 'k:{"name":"c"}', 'v:"x"']), min_size=1, max_size=3)
Path = tuple[str, ...]


def tree_of(members: set[Path]) -> Tree:
    """The tree that has exactly these members, in its one canonical form."""
    tree: Tree = {}
    for path in sorted(members):
        node = tree
        for element in path:
            node = node.setdefault(element, {})
    for path in members:
        node = tree
        for element in path:
            node = node[element]
        if node:
            node[SELF] = {}
    return tree


def members_of(tree: Tree, prefix: Path = ()) -> Iterator[Path]:
    for element, node in tree.items():
        if element == SELF:
            continue
        path = (*prefix, element)
        if not node or SELF in node:
            yield path
        yield from members_of(node, path)


SETS = st.sets(PATHS.map(tuple), max_size=8)


@given(SETS)
def test_a_tree_keeps_its_members(members: set[Path]) -> None:
    assert set(members_of(tree_of(members))) == members


@given(SETS, SETS)
def test_union_difference_and_intersection_are_those_of_sets(
    left: set[Path], right: set[Path]
) -> None:
    a, b = tree_of(left), tree_of(right)
    before = copy.deepcopy((a, b))
    assert set(members_of(union(a, b))) == left | right
    assert set(members_of(difference(a, b))) == left - right
    assert set(members_of(intersection(a, b))) == left & right
    assert (a, b) == before


@given(SETS, SETS)
def test_without_subtrees_takes_all_below_too(left: set[Path], right: set[Path]) -> None:
    kept = set(members_of(without_subtrees(tree_of(left), tree_of(right))))
    assert kept == {
        path for path in left if not any(path[: len(other)] == other for other in right)
    }


def test_paths_are_written_as_people_read_them() -> None:
    tree = {
        "f:spec": {
            "f:containers": {
                'k:{"name":"c1"}': {".": {}, "f:image": {}},
                'k:{"containerPort":80,"protocol":"TCP"}': {".": {}},
            }
        },
        "f:metadata": {"f:finalizers": {'v:"a.b/c"': {}}, "f:labels": {"f:x": {}}},
    }
    assert list(paths(tree)) == [
        '.metadata.finalizers[="a.b/c"]',
        ".metadata.labels.x",
        '.spec.containers[containerPort=80,protocol="TCP"]',
        '.spec.containers[name="c1"]',
        '.spec.containers[name="c1"].image',
    ]


@pytest.mark.parametrize(
    ("element", "text"), [("f:a", ".a"), ('v:"x"', '[="x"]'), ("i:0", "[0]"), ("v:1", "[=1]")]
)
def test_an_element(element: str, text: str) -> None:
    assert element_text(element) == text


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ({}, True),
        ({"f:a": {}}, True),
        ({"f:a": {"f:b": {".": {}}}}, True),
        ({"f:a:b": {}}, True),
        ({"f:": {}}, True),
        ({".": {}}, True),
        ({".": {"f:a": {}}}, False),
        ({"i:0": {}}, True),
        ({"i:17": {}}, True),
        ({"i:": {}}, False),
        ({"i:-1": {}}, False),
        ({"i:\u0661": {}}, False),
        ({'k:{"name":"a"}': {}}, True),
        ({'k:["a"]': {}}, False),
        ({"k:{": {}}, False),
        ({'v:"a"': {}}, True),
        ({"v:1": {}}, True),
        ({"v:{}": {}}, True),
        ({"v:": {}}, False),
        ({"x:a": {}}, False),
        ({"a": {}}, False),
        ({"f": {}}, False),
        ({"f:a": None}, False),
        ({"f:a": {"f:b": 3}}, False),
        ([], False),
        (None, False),
    ],
)
def test_which_values_are_sets(tree: object, expected: bool) -> None:
    assert is_tree(tree) is expected


def test_elements_are_in_upstreams_order() -> None:
    item: Tree = {"f:x": {}, ".": {}}
    tree: Tree = {"f:b": {}, 'k:{"name":"c"}': item, "f:a": {"v:1": {}, "f:z": {}}}
    ordered = in_order(tree)
    assert ordered == tree
    assert msgspec.json.encode(ordered) == msgspec.json.encode(tree, order="deterministic")
