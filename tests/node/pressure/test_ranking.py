from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.pods import Pod
from moorage.linux.trees import DiskUse
from moorage.node.pressure.ranking import PodUse, ranked
from tests.node.objects import a_pod, wire_container


def pod(name: str, request: str = "", *, priority: int = 0, resource: str = "memory") -> Pod:
    requests = {resource: request} if request else {}
    container = wire_container(resources={"requests": requests})
    return a_pod(container, name=name, meta={"uid": name}, priority=priority)


def order(signal: str, *pods: Pod, uses: Mapping[str, PodUse], is_apart: bool = False) -> str:
    names = [one.metadata.name for one in ranked(pods, uses, signal, has_image_disk=is_apart)]
    return " ".join(names)


def memory(amount: int) -> PodUse:
    return PodUse(memory_bytes=amount)


@pytest.mark.parametrize(
    ("pods", "uses", "wanted"),
    [
        ([pod("a", "50"), pod("b", "10")], {"a": 49, "b": 11}, "b a"),
        ([pod("a", "10", priority=5), pod("b", "10")], {"a": 99, "b": 11}, "b a"),
        ([pod("a", "10"), pod("b", "10")], {"a": 11, "b": 12}, "b a"),
        ([pod("a", "90"), pod("b", "80")], {"a": 20, "b": 20}, "b a"),
        ([pod("a", "10", priority=9), pod("b", "90")], {"a": 11, "b": 20}, "a b"),
        ([pod("a"), pod("b", priority=9)], {"a": 99}, "b a"),
    ],
    ids=[
        "who exceeds its request goes first",
        "then the lower priority",
        "then who exceeds it by more",
        "then who is closer to it",
        "exceeding comes before priority",
        "who is not measured goes first",
    ],
)
def test_order_under_memory_pressure(pods: list[Pod], uses: dict[str, int], wanted: str) -> None:
    known = {name: memory(amount) for name, amount in uses.items()}
    assert order("memory.available", *pods, uses=known) == wanted
    assert order("allocatableMemory.available", *reversed(pods), uses=known) == wanted


def test_order_under_shortage_of_process_ids_ignores_requests() -> None:
    pods = (pod("a", "50"), pod("b"), pod("c", priority=-1), pod("d", priority=-1))
    uses = {"a": PodUse(processes=9), "b": PodUse(processes=3), "c": PodUse(processes=1)}
    assert order("pid.available", *pods, uses=uses) == "d c a b"


def disk(layers: int, local: int, inodes: int = 0) -> PodUse:
    return PodUse(layers=DiskUse(layers, inodes), local=DiskUse(local, inodes))


@pytest.mark.parametrize(
    ("signal", "is_apart", "wanted"),
    [
        ("nodefs.available", False, "b a c"),
        ("imagefs.available", False, "b a c"),
        ("nodefs.available", True, "a c b"),
        ("imagefs.available", True, "b c a"),
        ("nodefs.inodesFree", True, "c b a"),
    ],
)
def test_order_under_disk_pressure_looks_at_the_disk_that_is_full(
    signal: str, is_apart: bool, wanted: str
) -> None:
    pods = [pod(name, "10", resource="ephemeral-storage") for name in "abc"]
    uses = {"a": disk(1, 50, 1), "b": disk(90, 2, 5), "c": disk(3, 40, 9)}
    assert order(signal, *pods, is_apart=is_apart, uses=uses) == wanted


@given(
    st.lists(
        st.tuples(st.integers(-2, 2), st.integers(0, 5), st.integers(0, 5)),
        min_size=1,
        max_size=8,
    )
)
def test_no_pod_within_its_request_goes_before_one_beyond(rows: list[tuple[int, ...]]) -> None:
    pods: list[Pod] = []
    uses: dict[str, Any] = {}
    for index, (priority, request, used) in enumerate(rows):
        pods.append(pod(f"p{index}", str(request), priority=priority))
        uses[f"p{index}"] = memory(used)
    names = order("memory.available", *pods, uses=uses).split()
    assert sorted(names) == sorted(uses)
    exceeds = [rows[int(name[1:])][2] > rows[int(name[1:])][1] for name in names]
    assert exceeds == sorted(exceeds, reverse=True)
