from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.workloads import Deployment, DeploymentStatus, ReplicaSet, ReplicaSetStatus
from moorage.controllers.deployments.bounds import max_surge, max_unavailable, replicas_of
from moorage.controllers.deployments.rolling import (
    Plan,
    empty_old,
    grow_new,
    is_resized,
    new_set_size,
    resize,
    shrink_old,
)
from moorage.controllers.deployments.sets import SetsOf, sort_sets
from tests.controllers.objects import OTHER_TEMPLATE, deployment, replica_set


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "expected"),
    [
        (10, "25%", "25%", (3, 2)),
        (1, "25%", "25%", (1, 0)),
        (3, 0, 1, (0, 1)),
        (3, "0%", "1%", (0, 1)),
        (2, 1, 5, (1, 2)),
        (0, "25%", "25%", (0, 0)),
    ],
)
def test_bounds(
    replicas: int, surge: int | str, unavailable: int | str, expected: tuple[int, int]
) -> None:
    wanted = deployment(replicas, surge=surge, unavailable=unavailable)
    assert (max_surge(wanted), max_unavailable(wanted)) == expected


def test_recreate_has_no_bounds() -> None:
    wanted = deployment(5, strategy="Recreate")
    assert (max_surge(wanted), max_unavailable(wanted)) == (0, 0)


@pytest.mark.parametrize(
    ("replicas", "old", "new", "size"),
    [(10, 10, None, 3), (10, 10, 3, 3), (10, 8, 3, 5), (10, 0, 5, 10), (10, 0, 12, 12)],
)
def test_the_new_set_grows_as_far_as_the_surge_lets_it(
    replicas: int, old: int, new: int | None, size: int
) -> None:
    sets = SetsOf(replica_set("new", new) if new is not None else None, (replica_set("old", old),))
    assert new_set_size(deployment(replicas), sets) == size


def test_a_new_set_that_is_too_large_shrinks_at_once() -> None:
    sets = SetsOf(replica_set("new", 12), ())
    assert grow_new(deployment(10), sets) == {"new": 10}


@pytest.mark.parametrize(
    ("new", "new_available", "old", "old_available", "plan"),
    [
        (3, 0, 10, 10, {"old": 8}),
        (5, 5, 8, 8, {"old": 3}),
        (3, 0, 8, 8, {}),
        (3, 0, 10, 5, {"old": 8}),
        (10, 10, 2, 2, {"old": 0}),
        (10, 10, 0, 0, {}),
    ],
)
def test_old_sets_shrink_by_what_may_be_missing(
    new: int, new_available: int, old: int, old_available: int, plan: Plan
) -> None:
    sets = SetsOf(
        replica_set("new", new, available=new_available),
        (replica_set("old", old, available=old_available),),
    )
    assert shrink_old(deployment(10), sets) == plan


def test_recreate_empties_all_old_sets() -> None:
    sets = SetsOf(None, (replica_set("a", 2), replica_set("b", 0), replica_set("c", 1)))
    assert empty_old(sets) == {"a": 0, "c": 0}


@pytest.mark.parametrize(
    ("replicas", "desired", "size", "expected"),
    [(5, 3, 3, True), (3, 3, 3, False), (5, 3, 0, False), (5, None, 3, False)],
)
def test_a_change_of_the_wanted_number_is_noticed(
    replicas: int, desired: int | None, size: int, expected: bool
) -> None:
    sets = SetsOf(replica_set("new", size, desired=desired), ())
    assert is_resized(deployment(replicas), sets) is expected


def test_a_single_set_takes_the_whole_change() -> None:
    assert resize(deployment(5), SetsOf(None, (replica_set("a", 3),))) == {"a": 5}


def test_growth_is_shared_in_proportion_to_the_sets_sizes() -> None:
    # The example of the API docs: 10 → 15 with 8 old and 5 new pods of at most 13.
    wanted = deployment(15, surge=3, unavailable=2)
    sets = SetsOf(
        replica_set("new", 5, available=0, desired=10, most=13, age=1),
        (replica_set("old", 8, desired=10, most=13, age=2),),
    )
    assert resize(wanted, sets) == {"old": 11, "new": 7}


def test_shrinking_to_zero_empties_every_set() -> None:
    sets = SetsOf(
        replica_set("new", 5, available=0, desired=10, most=13),
        (replica_set("old", 8, desired=10, most=13),),
    )
    assert resize(deployment(0, surge=3, unavailable=2), sets) == {"old": 0, "new": 0}


def test_a_finished_new_set_makes_the_old_ones_go() -> None:
    sets = SetsOf(replica_set("new", 5, desired=5), (replica_set("old", 2),))
    assert resize(deployment(5), sets) == {"old": 0}


@given(
    wanted=st.integers(0, 40),
    sizes=st.lists(st.integers(0, 20), min_size=1, max_size=5),
    surge=st.integers(1, 5),
)
def test_a_resize_in_proportion_reaches_exactly_the_allowed_total(
    wanted: int, sizes: list[int], surge: int
) -> None:
    most = sum(sizes)
    old = tuple(
        replica_set(f"s{i}", size, available=0, desired=most - surge, most=most, age=i)
        for i, size in enumerate(sizes)
    )
    target = deployment(wanted, surge=surge, unavailable=0)
    plan = resize(target, SetsOf(None, old))
    assert all(size >= 0 for size in plan.values())
    if sum(size > 0 for size in sizes) > 1:
        assert sum(plan.values()) == (wanted + surge if wanted else 0)


@given(
    replicas=st.integers(1, 12),
    surge=st.integers(0, 4),
    unavailable=st.integers(0, 4),
    old_sizes=st.lists(st.integers(0, 12), max_size=3),
)
def test_a_rollout_stays_within_its_bounds_and_ends(
    replicas: int, surge: int, unavailable: int, old_sizes: list[int]
) -> None:
    """Every pod becomes available at once; the sets follow the plans until nothing changes."""
    wanted = deployment(replicas, surge=surge, unavailable=unavailable)
    sets = SetsOf(
        replica_set("new", 0),
        tuple(
            replica_set(f"old{i}", size, template=OTHER_TEMPLATE)
            for i, size in enumerate(old_sizes)
        ),
    )
    start = sum(old_sizes)
    for _ in range(200):
        plan = grow_new(wanted, sets) or shrink_old(wanted, sets)
        if not plan:
            break
        sets = _carried_out(sets, plan)
        total = sum(replica_set.spec.replicas or 0 for replica_set in sets.all)
        assert total <= max(start, replicas + max_surge(wanted))
        assert total >= min(start, replicas - max_unavailable(wanted))
    assert sets.new is not None
    assert sets.new.spec.replicas == replicas_of(wanted)
    assert all(replica_set.spec.replicas == 0 for replica_set in sets.old)


def _carried_out(sets: SetsOf, plan: Plan) -> SetsOf:
    def sized(replica_set_: ReplicaSet) -> ReplicaSet:
        size = plan.get(replica_set_.metadata.name, replica_set_.spec.replicas or 0)
        return msgspec.structs.replace(
            replica_set_,
            spec=msgspec.structs.replace(replica_set_.spec, replicas=size),
            status=ReplicaSetStatus(replicas=size, available_replicas=size),
        )

    return SetsOf(sized(sets.new) if sets.new else None, tuple(map(sized, sets.old)))


def test_the_oldest_set_with_the_template_is_the_new_one() -> None:
    first, second = replica_set("first", age=10), replica_set("second", age=5)
    other = replica_set("other", template=OTHER_TEMPLATE, age=20)
    target: Deployment = deployment(1, status=DeploymentStatus())
    sets = sort_sets(target, [second, other, first])
    assert sets.new is first
    assert [obj.metadata.name for obj in sets.old] == ["other", "second"]
