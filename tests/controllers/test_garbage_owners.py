from __future__ import annotations

import pytest

from moorage.api.meta import ObjectMeta
from moorage.controllers.garbage.graph import (
    Judgement,
    Owner,
    Verdict,
    blocks,
    judge,
    lost_or_unblocked,
)
from tests.controllers.objects import owner, pod

SOLID, DANGLING, WAITING = Owner.SOLID, Owner.DANGLING, Owner.WAITING
BACKGROUND = Judgement(Verdict.DELETE, policy="Background")


@pytest.mark.parametrize(
    ("states", "has_dependents", "expected"),
    [
        ([], False, Judgement(Verdict.KEEP)),
        ([SOLID], False, Judgement(Verdict.KEEP)),
        ([SOLID, SOLID], True, Judgement(Verdict.KEEP)),
        ([DANGLING], False, BACKGROUND),
        ([DANGLING, DANGLING], True, BACKGROUND),
        ([SOLID, DANGLING], False, Judgement(Verdict.DROP_OWNERS, frozenset({"o1"}))),
        ([SOLID, WAITING], True, Judgement(Verdict.DROP_OWNERS, frozenset({"o1"}))),
        ([WAITING], False, BACKGROUND),
        ([WAITING], True, Judgement(Verdict.DELETE_FOREGROUND, policy="Foreground")),
        ([WAITING, DANGLING], True, Judgement(Verdict.DELETE_FOREGROUND, policy="Foreground")),
    ],
)
def test_judgement(states: list[Owner], has_dependents: bool, expected: Judgement) -> None:
    owners = tuple(owner(f"o{i}") for i in range(len(states)))
    meta = pod("p", owners=owners).metadata
    by_uid = {f"o{i}": state for i, state in enumerate(states)}
    assert judge(meta, by_uid, has_dependents=has_dependents) == expected


@pytest.mark.parametrize(
    ("finalizer", "policy"), [("orphan", "Orphan"), ("foregroundDeletion", "Foreground")]
)
def test_a_policy_that_was_asked_for_stays(finalizer: str, policy: str) -> None:
    meta = ObjectMeta(name="p", owner_references=(owner("o"),), finalizers=(finalizer,))
    verdict = judge(meta, {"o": DANGLING}, has_dependents=False)
    assert verdict == Judgement(Verdict.DELETE, policy=policy)


def test_only_dependents_that_say_so_block_their_owner() -> None:
    meta = pod("p", owners=(owner("a"), owner("b", blocks=False))).metadata
    assert blocks(meta, "a")
    assert not blocks(meta, "b")
    assert not blocks(meta, "c")


def test_an_owner_is_free_when_a_blocking_dependent_goes_or_lets_go() -> None:
    held = pod("p", owners=(owner("a"), owner("b"))).metadata
    released = pod("p", owners=(owner("a", blocks=False), owner("b"))).metadata
    assert [owner.uid for owner in lost_or_unblocked(held, None)] == ["a", "b"]
    assert [owner.uid for owner in lost_or_unblocked(held, released)] == ["a"]
    assert list(lost_or_unblocked(held, held)) == []
