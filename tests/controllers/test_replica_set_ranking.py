from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.controllers.objects import Pod
from moorage.controllers.pods import deletion_cost, pods_to_delete
from tests.controllers.objects import NOW, pod


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pod("z", node="", phase="Pending", ready_for=None), pod("a", phase="Pending")),
        (pod("z", phase="Pending", ready_for=None), pod("a", ready_for=None)),
        (pod("z", phase="Unknown", ready_for=None), pod("a", ready_for=None)),
        (pod("z", ready_for=None, cost="100"), pod("a", cost="-100")),
        (pod("z", cost="-5"), pod("a")),
        (pod("z", cost="-5", ready_for=9000), pod("a", ready_for=10)),
        (pod("z", ready_for=10), pod("a", ready_for=3600)),
        (pod("z", restarts=3), pod("a")),
        (pod("z", age=4000), pod("a", age=90000)),
    ],
    ids=[
        "unassigned", "pending", "unknown", "not ready", "cheaper", "cost before readiness",
        "ready for less time", "more restarts", "younger",
    ],
)  # fmt: skip
def test_goes_first(first: Pod, second: Pod) -> None:
    assert pods_to_delete([second, first], [], 1, NOW) == [first]


def test_a_crowded_node_loses_its_pods_first() -> None:
    crowd = [pod(f"c{i}", node="crowded") for i in range(3)]
    lonely, crowded = pod("a", node="lonely"), pod("z", node="crowded")
    related = [*crowd, lonely, crowded]
    assert pods_to_delete([lonely, crowded], related, 1, NOW) == [crowded]


def test_about_equal_ages_are_decided_by_chance_and_not_by_age() -> None:
    older, younger = pod("a", ready_for=3000, age=7200), pod("b", ready_for=2999, age=7199)
    assert pods_to_delete([younger, older], [], 1, NOW) == [older]


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("7", 7),
        ("-7", -7),
        ("+7", 0),
        ("07", 0),
        ("x", 0),
        ("2147483647", 2147483647),
        ("2147483648", 0),
    ],
)
def test_deletion_cost(text: str, cost: int) -> None:
    assert deletion_cost(pod("p", cost=text)) == cost


@given(
    st.lists(
        st.builds(
            pod,
            st.uuids().map(str),
            node=st.sampled_from(["", "n1", "n2"]),
            phase=st.sampled_from(["Pending", "Running", "Unknown"]),
            ready_for=st.none() | st.floats(0, 1e6),
            restarts=st.integers(0, 3),
        ),
        max_size=8,
    ),
    st.integers(0, 10),
    st.randoms(),
)
def test_the_choice_does_not_depend_on_the_order(
    pods: list[Pod], count: int, random: object
) -> None:
    shuffled = list(pods)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    chosen = pods_to_delete(pods, pods, count, NOW)
    names = {obj.metadata.name for obj in chosen}
    assert len(chosen) == min(count, len(pods))
    assert names == {obj.metadata.name for obj in pods_to_delete(shuffled, pods, count, NOW)}
