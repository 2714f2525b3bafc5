"""Invariants of rollouts under random events: waves, rollback, kills, repetition."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from moorage.runtimeclass.rollouts import Step, record_of
from tests.runtimeclass.rollouts.cluster import Cluster

_NUMBER = 12
_names = st.sampled_from([f"w{index}" for index in range(_NUMBER)])


class Rollouts(RuleBasedStateMachine):
    """Events in any order; what must hold holds after each."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster(
            _NUMBER, canary=2, wave_size="30%",
            gates={"ready_within_seconds": 60, "max_failure_percent": 20},
        )  # fmt: skip
        self.taken = Step(self.cluster.rollout.status)

    def _unsettled(self) -> int:
        workloads = self.cluster.workloads
        return sum(not workloads[name].is_settled for name in self.cluster.moved)

    @rule(seconds=st.integers(0, 90), cut=st.none() | st.integers(0, 3), is_killed=st.booleans())
    def step(self, seconds: int, cut: int | None, is_killed: bool) -> None:
        before = self._unsettled()
        self.taken = self.cluster.step(seconds=seconds, cut=cut, is_killed=is_killed)
        forward = [move for move in self.taken.moves if move.class_name == "new"]
        if forward:
            assert before + len(forward) <= self.taken.status.wave_size <= 4
            assert self.taken.status.wave > 1 or len(forward) <= 2

    @rule(name=_names)
    def settle(self, name: str) -> None:
        self.cluster.settle(name)

    @rule()
    def settle_all(self) -> None:
        self.cluster.settle()

    @rule(name=_names)
    def break_one(self, name: str) -> None:
        self.cluster.change(name, fault="gone wrong")

    @rule(name=_names)
    def heal(self, name: str) -> None:
        self.cluster.change(name, fault="", is_settled=True)

    @rule(name=_names)
    def revert(self, name: str) -> None:
        self.cluster.change(name, class_name="old", is_settled=True)

    @rule(is_paused=st.booleans())
    def pause(self, is_paused: bool) -> None:
        self.cluster.spec(paused=is_paused)

    @rule(policy=st.sampled_from(["Pause", "Rollback"]))
    def policy(self, policy: str) -> None:
        self.cluster.spec(on_failure=policy)

    @rule()
    def resume(self) -> None:
        self.cluster.resume()

    @rule()
    def back(self) -> None:
        self.cluster.spec(rollback=True, paused=False)

    @invariant()
    def a_step_repeated_is_the_same(self) -> None:
        assert self.cluster.decide() == self.cluster.decide()

    @invariant()
    def only_marked_workloads_have_the_target_class(self) -> None:
        for name in self.cluster.moved:
            mark = self.cluster.workloads[name].mark
            assert mark is not None
            assert mark.moved_from == "old"
            assert f"uid-{name}" in record_of(self.cluster.rollout.status.moves)

    @precondition(lambda self: self.cluster.phase in ("Stopped", "Paused", "Completed"))
    @invariant()
    def nothing_moves_while_the_status_says_so(self) -> None:
        assert self.cluster.phase != self.taken.status.phase or not self.taken.moves

    def teardown(self) -> None:
        """From any state, forward and back come to their ends, with every class as before."""
        cluster = self.cluster
        for name in cluster.workloads:
            cluster.change(name, fault="", is_settled=True)
        cluster.now = cluster.now.replace(microsecond=0)
        if cluster.phase != "Completed":
            cluster.step()
            cluster.settle()
            cluster.resume()
            cluster.run()
            # The rollout may have been complete, as a step showed, before one was reverted.
            assert cluster.phase == "Completed"
        cluster.spec(rollback=True, paused=False)
        cluster.run()
        assert cluster.moved == []
        assert all(one.mark is None for one in cluster.workloads.values())


TestRollouts = Rollouts.TestCase
TestRollouts.settings = settings(max_examples=25, stateful_step_count=20)
