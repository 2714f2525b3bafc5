"""Revisions of templates: which is current, what number is next, which go."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.meta import ObjectMeta
from moorage.api.workloads import ControllerRevision
from moorage.controllers.revisions import (
    RevisionRequests,
    expired,
    next_number,
    revision_data,
    sort_history,
    template_of,
)
from moorage.controllers.templates import template_hash
from moorage.wire.client.resources import CONTROLLER_REVISIONS, STATEFUL_SETS
from tests.clocks import FakeClock
from tests.controllers.memory import MemoryClient
from tests.controllers.objects import OTHER_TEMPLATE, TEMPLATE

OWNER = ObjectMeta(name="web", namespace="default", uid="u", annotations={"why": "test"})


def revision(name: str, number: int, template: dict[str, Any] = TEMPLATE) -> ControllerRevision:
    return ControllerRevision(
        metadata=ObjectMeta(name=name, namespace="default", uid=name),
        data=revision_data(template),
        revision=number,
    )


def names(revisions: Any) -> list[str]:
    return [one.metadata.name for one in revisions]


def test_a_revision_restores_its_template() -> None:
    assert revision_data(TEMPLATE)["spec"]["template"]["$patch"] == "replace"


def test_the_data_has_sorted_keys_as_others_compare_its_bytes() -> None:
    template = {"spec": {"b": [{"z": 1, "a": ({"d": 1, "c": 2},)}], "a": {}}, "metadata": {}}
    assert msgspec.json.encode(revision_data(template)) == (
        b'{"spec":{"template":{"$patch":"replace","metadata":{},'
        b'"spec":{"a":{},"b":[{"a":[{"c":2,"d":1}],"z":1}]}}}}'
    )
    assert template_of(revision("a", 1)) == TEMPLATE
    assert template_of(ControllerRevision()) == {}


def test_the_last_revision_with_the_template_is_current() -> None:
    history = sort_history(
        [revision("c", 3), revision("b", 2, OTHER_TEMPLATE), revision("a", 1)], TEMPLATE
    )
    assert history.current is not None
    assert history.current.metadata.name == "c"
    assert names(history.duplicates) == ["a"]
    assert names(history.old) == ["b"]


def test_a_new_template_has_no_revision() -> None:
    history = sort_history([revision("a", 1)], OTHER_TEMPLATE)
    assert history.current is None
    assert names(history.old) == ["a"]


def test_numbers_grow() -> None:
    assert next_number([]) == 1
    assert next_number([revision("a", 4), revision("b", 2)]) == 5


@pytest.mark.parametrize(
    ("live", "limit", "counts_live", "gone"),
    [
        ((), 2, False, ["a", "b"]),
        ((), 0, False, ["a", "b", "c", "d"]),
        ((), 10, False, []),
        ((), -1, False, []),
        (("a",), 2, False, ["b"]),
        (("a",), 2, True, ["b", "c"]),
        (("a", "b", "c", "d"), 0, True, []),
    ],
)
def test_the_oldest_revisions_beyond_the_limit_go(
    live: tuple[str, ...], limit: int, counts_live: bool, gone: list[str]
) -> None:
    old = [revision(name, number) for number, name in enumerate("abcd", 1)]
    assert names(expired(old[::-1], live, limit, counts_live=counts_live)) == gone


@given(
    st.lists(st.integers(1, 50), unique=True), st.sets(st.integers(1, 50)), st.integers(0, 9),
    st.booleans(),
)  # fmt: skip
def test_live_revisions_are_kept(
    numbers: list[int], live: set[int], limit: int, counts_live: bool
) -> None:
    old = [revision(str(number), number) for number in numbers]
    used = {str(number) for number in live}
    gone = names(expired(old, used, limit, counts_live=counts_live))
    assert not used & set(gone)
    unused = [one for one in old if one.metadata.name not in used]
    kept = len(unused) - len(gone)
    assert kept >= (0 if counts_live else min(limit, len(unused)))


@pytest.fixture
def requests_of(client: MemoryClient) -> RevisionRequests:
    unsafe: Any = client
    return RevisionRequests(unsafe, STATEFUL_SETS, "controller.kubernetes.io/hash")


@pytest.fixture
def client() -> MemoryClient:
    return MemoryClient(FakeClock())


async def test_a_revision_is_created_once(
    client: MemoryClient, requests_of: RevisionRequests
) -> None:
    first = await requests_of.create(OWNER, TEMPLATE, 1, 0)
    again = await requests_of.create(OWNER, TEMPLATE, 1, 0)
    assert first == again
    hash_ = template_hash(TEMPLATE, 0)
    wire = client.find(CONTROLLER_REVISIONS, f"web-{hash_}")
    assert wire is not None
    assert wire["metadata"]["labels"] == {"app": "web", "controller.kubernetes.io/hash": hash_}
    assert wire["metadata"]["annotations"] == {"why": "test"}
    assert wire["metadata"]["ownerReferences"][0]["uid"] == "u"
    assert wire["revision"] == 1


async def test_a_namesake_of_another_template_counts_as_a_collision(
    client: MemoryClient, requests_of: RevisionRequests
) -> None:
    client.put(CONTROLLER_REVISIONS, revision(f"web-{template_hash(TEMPLATE, 0)}", 1))
    named = await requests_of.create(OWNER, TEMPLATE, 1, 0)
    assert named.collisions == 1
    assert named.revision.metadata.name == f"web-{template_hash(TEMPLATE, 1)}"


async def test_a_revision_that_is_gone_is_deleted(
    client: MemoryClient, requests_of: RevisionRequests
) -> None:
    client.put(CONTROLLER_REVISIONS, revision("a", 1))
    renumbered = await requests_of.renumber(revision("a", 1), 7)
    assert renumbered.revision == 7
    await requests_of.delete(renumbered)
    await requests_of.delete(renumbered)
    assert client.names(CONTROLLER_REVISIONS) == []
