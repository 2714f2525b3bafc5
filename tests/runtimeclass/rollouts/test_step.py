"""Scripts of events for the state machine of rollouts."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from moorage.api.runtime_rollouts import (
    MOST_MOVED,
    RolloutStop,
    RuntimeRollout,
    RuntimeRolloutSpec,
    RuntimeRolloutStatus,
)
from moorage.runtimeclass.rollouts import Mark, Obstacle, PodFacts, Unmovable
from moorage.runtimeclass.rollouts.record import record_of
from moorage.runtimeclass.rollouts.step import standing_stop
from tests.runtimeclass.rollouts.cluster import START, Cluster


def test_a_canary_goes_first_and_waves_follow_when_it_has_settled() -> None:
    cluster = Cluster(9, canary=1, wave_size=3)
    assert len(cluster.step().moves) == 1
    assert cluster.step().moves == ()
    cluster.settle()
    assert len(cluster.step().moves) == 3
    cluster.settle("w1", "w2")
    assert cluster.step().moves == ()
    cluster.settle()
    assert len(cluster.step().moves) == 3
    assert cluster.rollout.status.wave == 3
    cluster.run()
    assert len(cluster.moved) == 9
    counts = cluster.rollout.status.counts
    assert (counts.total, counts.moved, counts.pending) == (9, 9, 0)
    assert cluster.condition("Completed") == ("True", "Completed")


def test_waves_may_be_percentages_and_there_may_be_no_canary() -> None:
    cluster = Cluster(10, canary=0, wave_size="25%")
    assert len(cluster.step().moves) == 3
    cluster = Cluster(10, canary="15%", wave_size="100%")
    assert len(cluster.step().moves) == 2
    cluster.settle()
    assert len(cluster.step().moves) == 8


def test_a_wave_that_a_restart_cut_off_is_filled_up() -> None:
    cluster = Cluster(9, canary=0, wave_size=4)
    cluster.step(cut=2)
    assert len(cluster.moved) == 2
    assert len(cluster.step().moves) == 2
    assert cluster.step().moves == ()


def test_pause_stops_moves_and_resume_goes_on() -> None:
    cluster = Cluster(4, canary=0, wave_size=1)
    cluster.step()
    cluster.settle()
    cluster.spec(paused=True)
    assert cluster.step().moves == ()
    assert cluster.phase == "Paused"
    cluster.resume()
    assert len(cluster.step().moves) == 1
    cluster.run()
    assert len(cluster.moved) == 4


def test_rollback_returns_all_that_were_moved_at_once() -> None:
    cluster = Cluster(9, canary=1, wave_size=4)
    cluster.step()
    cluster.settle()
    cluster.step()
    cluster.spec(rollback=True)
    assert len(cluster.step().moves) == 5
    assert cluster.phase == "RollingBack"
    cluster.step()
    assert cluster.phase == "RolledBack"
    assert cluster.moved == []
    assert all(one.mark is None for one in cluster.workloads.values())


def test_what_was_rolled_back_can_go_forward_again() -> None:
    cluster = Cluster(3)
    cluster.run()
    cluster.spec(rollback=True)
    cluster.run()
    assert (cluster.phase, cluster.moved) == ("RolledBack", [])
    cluster.resume()
    cluster.run()
    assert (cluster.phase, len(cluster.moved)) == ("Completed", 3)


def test_a_completed_rollout_leaves_later_workloads_alone() -> None:
    cluster = Cluster(2)
    cluster.run()
    cluster.add("later")
    cluster.step()
    assert cluster.workloads["later"].class_name == "old"


def test_a_workload_that_no_pod_gets_ready_in_stops_the_rollout() -> None:
    cluster = Cluster(4, canary=1, gates={"ready_within_seconds": 60})
    taken = cluster.step()
    assert taken.due is None
    taken = cluster.step()
    assert taken.due == cluster.now.replace(microsecond=0) + timedelta(seconds=59)
    assert cluster.step(seconds=60).moves == ()
    assert (cluster.phase, cluster.reason) == ("Stopped", "NotReady")
    assert cluster.condition("Healthy") == ("False", "NotReady")
    cluster.settle()
    assert cluster.step().moves == ()
    assert cluster.phase == "Stopped"
    cluster.resume()
    cluster.run()
    assert cluster.phase == "Completed"


def test_each_pod_that_gets_ready_gives_the_next_one_its_time() -> None:
    cluster = Cluster(1, canary=1, gates={"ready_within_seconds": 60})
    cluster.step()
    for number in range(5):
        pods = tuple(PodFacts(f"p{one}", START, START, cluster.now) for one in range(number + 1))
        cluster.change("w0", pods=pods)
        cluster.step(seconds=50)
        assert cluster.phase == "Progressing"
    cluster.step(seconds=61)
    assert cluster.reason == "NotReady"


def test_a_moved_workload_that_grows_later_has_its_time_again() -> None:
    cluster = Cluster(5, canary=0, wave_size=1, gates={"ready_within_seconds": 60})
    cluster.step()
    cluster.settle()
    cluster.step(seconds=500)
    cluster.change("w0", is_settled=False)
    cluster.step()
    assert cluster.phase == "Progressing"
    cluster.step(seconds=61)
    assert cluster.reason == "NotReady"


def test_restarts_and_slow_starts_stop_the_rollout() -> None:
    cluster = Cluster(2, gates={"max_restarts": 2})
    cluster.step()
    cluster.change("w0", pods=(PodFacts("p", START, restarts=2),))
    cluster.step()
    assert cluster.phase == "Progressing"
    cluster.change("w0", pods=(PodFacts("p", START, restarts=3),))
    cluster.step()
    assert cluster.reason == "TooManyRestarts"

    cluster = Cluster(2, gates={"max_start_latency_seconds": 5})
    cluster.step()
    ready = START + timedelta(seconds=20)
    cluster.change("w0", is_settled=True, pods=(PodFacts("p", START, START, ready),))
    cluster.step()
    assert cluster.reason == "SlowStart"


def test_a_share_of_failures_may_be_allowed() -> None:
    cluster = Cluster(10, canary=0, wave_size=5, gates={"max_failure_percent": 20})
    cluster.step()
    cluster.settle("w0", "w1", "w2", "w3")
    cluster.change("w4", fault="gone wrong")
    assert len(cluster.step().moves) == 5
    cluster.settle("w5", "w6", "w7", "w8", "w9")
    cluster.step()
    assert cluster.phase == "Completed"
    assert cluster.rollout.status.counts.failed == 1
    cluster = Cluster(10, canary=0, wave_size=5, gates={"max_failure_percent": 19})
    cluster.step()
    cluster.change("w4", fault="gone wrong")
    cluster.step()
    assert cluster.phase == "Stopped"


def test_a_failed_rollout_rolls_back_by_itself_where_that_is_the_policy() -> None:
    cluster = Cluster(4, on_failure="Rollback")
    cluster.step()
    cluster.change("w0", fault="gone wrong")
    taken = cluster.step()
    assert taken.moves == ()
    assert taken.status.stop is not None
    assert "w0 (gone wrong)" in taken.status.stop.message
    assert len(cluster.step().moves) == 1
    cluster.change("w0", fault="")
    cluster.step()
    assert (cluster.phase, cluster.moved, cluster.reason) == ("RolledBack", [], "WorkloadFailed")
    assert cluster.step().moves == ()


def test_a_refused_move_is_a_failure_that_names_the_answer() -> None:
    cluster = Cluster(3)
    cluster.step(cut=0)
    cluster.change("w0", refusal="denied by policy")
    cluster.step()
    assert cluster.reason == "Refused"
    cluster.change("w0", refusal="")
    cluster.resume()
    cluster.run()
    assert len(cluster.moved) == 3


def test_a_class_that_goes_back_stops_the_rollout_whatever_the_policy() -> None:
    cluster = Cluster(3, on_failure="Rollback")
    cluster.step()
    cluster.settle()
    cluster.step()
    cluster.change("w0", class_name="old")
    assert cluster.step().moves == ()
    assert (cluster.phase, cluster.reason) == ("Stopped", "Reverted")
    assert cluster.rollout.status.counts.reverted == 1
    cluster.step()
    cluster.resume()
    cluster.run()
    assert len(cluster.moved) == 3


def test_a_workload_that_is_replaced_without_its_mark_counts_as_gone_back() -> None:
    cluster = Cluster(3)
    cluster.step()
    cluster.settle()
    cluster.step()
    cluster.change("w0", class_name="old", mark=None)
    cluster.step()
    assert cluster.reason == "Reverted"


def test_a_workload_that_gets_a_third_class_is_left_to_its_owner() -> None:
    cluster = Cluster(3)
    cluster.step()
    cluster.change("w0", class_name="third")
    cluster.run()
    assert cluster.workloads["w0"].class_name == "third"
    cluster.spec(rollback=True)
    cluster.run()
    assert cluster.workloads["w0"].class_name == "third"


def test_workloads_that_others_moved_are_not_rolled_back() -> None:
    cluster = Cluster(2)
    cluster.add("before", "new")
    cluster.run()
    cluster.spec(rollback=True)
    cluster.run()
    assert cluster.moved == ["before"]


def test_held_workloads_are_moved_last_and_hold_nothing_up() -> None:
    cluster = Cluster(canary=1, wave_size=2)
    cluster.add("a", hold="paused", is_settled=True)
    cluster.add("b", size=0)
    cluster.add("c", is_on_schedule=True, size=0, is_settled=True)
    cluster.add("d", size=3)
    cluster.add("e", size=2)
    order = []
    while cluster.phase != "Completed":
        order += [move.workload.name for move in cluster.step().moves]
        cluster.settle()
    assert order == ["e", "d", "b", "c", "a"]
    assert cluster.rollout.status.counts.held == 1
    assert "1 wait" in cluster.rollout.status.conditions[-1].message


def test_obstacles_stop_moves_at_the_start_and_half_way() -> None:
    cluster = Cluster(3)
    cluster.obstacle = Obstacle("ClassMissing", "RuntimeClass new does not exist; create it")
    assert cluster.step().moves == ()
    assert cluster.phase == "Blocked"
    assert cluster.condition("Accepted") == ("False", "ClassMissing")
    assert cluster.rollout.status.started_at is None
    cluster.obstacle = None
    assert len(cluster.step().moves) == 1
    cluster.settle()
    cluster.obstacle = Obstacle("HandlerMissing", "no node has it")
    assert cluster.step().moves == ()
    cluster.obstacle = None
    cluster.run()
    assert cluster.condition("Accepted") == ("True", "Accepted")


def test_a_rollback_waits_for_the_class_that_pods_would_need() -> None:
    cluster = Cluster(2)
    cluster.run()
    cluster.return_obstacle = Obstacle("ClassMissing", "RuntimeClass old does not exist")
    cluster.spec(rollback=True)
    assert cluster.step().moves == ()
    assert cluster.condition("Accepted") == ("False", "ClassMissing")
    cluster.return_obstacle = None
    cluster.run()
    assert cluster.moved == []


def test_a_rollout_of_nothing_is_complete() -> None:
    cluster = Cluster(0)
    cluster.unmovable = [Unmovable("Pod", "default", "p", "no workload owns it")]
    cluster.step()
    assert cluster.phase == "Completed"
    assert [one.state for one in cluster.rollout.status.workloads] == ["Unmovable"]


def test_the_status_of_thousands_of_workloads_stays_small() -> None:
    cluster = Cluster(3000, canary=0, wave_size="100%")
    cluster.unmovable = [Unmovable("Pod", "default", f"p{one}", "why") for one in range(500)]
    cluster.step()
    cluster.change("w2999", fault="gone wrong")
    status = cluster.step().status
    assert len(status.workloads) == 256
    assert status.workloads[0].name == "w2999"
    assert (status.counts.total, status.counts.unmovable) == (3000, 500)


def test_a_step_that_is_repeated_decides_the_same() -> None:
    cluster = Cluster(5)
    cluster.step()
    cluster.settle("w0")
    assert cluster.decide() == cluster.decide()
    first = cluster.step()
    again = cluster.decide()
    assert again.moves == ()
    assert first.status.started_at == again.status.started_at


def test_a_move_that_was_recorded_and_never_made_is_made_later() -> None:
    cluster = Cluster(3, canary=0, wave_size=2)
    assert len(cluster.step(cut=0).moves) == 2
    assert cluster.moved == []
    assert len(cluster.step().moves) == 2
    cluster.run()
    assert cluster.reason == ""
    assert len(cluster.moved) == 3


def test_a_rollback_needs_no_mark_and_ends_with_nothing_recorded() -> None:
    cluster = Cluster(3)
    cluster.run()
    for name in cluster.workloads:
        cluster.change(name, mark=None)
    cluster.spec(rollback=True)
    cluster.run()
    assert (cluster.moved, cluster.rollout.status.moves) == ([], ())


def test_marks_of_another_rollout_with_this_name_do_not_count() -> None:
    cluster = Cluster(1)
    cluster.add("w1", "new", mark=Mark("r", "uid-of-another", "old", START, 5))
    cluster.step()
    cluster.settle()
    cluster.change("w0", class_name="old", mark=Mark("r", "uid-of-another", "old", START, 5))
    cluster.run()
    assert cluster.reason == ""
    cluster.spec(rollback=True)
    cluster.run()
    assert cluster.moved == ["w1"]


def test_a_rollout_moves_no_more_than_its_status_can_record() -> None:
    cluster = Cluster(MOST_MOVED + 3, canary=0, wave_size="100%")
    for _ in range(3):
        cluster.step()
        cluster.settle()
    assert len(cluster.moved) == MOST_MOVED
    assert (cluster.phase, cluster.condition("Accepted")) == (
        "Blocked", ("False", "TooManyWorkloads"),
    )  # fmt: skip
    assert len(msgspec.json.encode(cluster.rollout.status)) < 2**20
    cluster.spec(rollback=True)
    cluster.run()
    assert cluster.moved == []


def test_workloads_that_are_gone_are_not_recorded_any_longer() -> None:
    cluster = Cluster(2)
    cluster.run()
    cluster.resume()
    del cluster.workloads["w0"]
    cluster.add("w2")
    cluster.spec(rollback=True)
    cluster.step(cut=0)
    assert [moves.uids for moves in cluster.rollout.status.moves] == [("uid-w1",)]


def test_a_refusal_of_any_length_fits_the_status() -> None:
    cluster = Cluster(5, canary=0, wave_size="100%")
    cluster.step(cut=0)
    for name in cluster.workloads:
        cluster.change(name, refusal="x" * 1_000_000)
    cluster.step()
    assert cluster.reason == "Refused"
    assert len(msgspec.json.encode(cluster.rollout.status)) < 10_000


def test_marks_and_records_have_whole_seconds() -> None:
    cluster = Cluster(1, canary=0, wave_size=1)
    (move,) = cluster.step(seconds=1.25).moves
    assert move.mark is not None
    assert move.mark.moved_at == START + timedelta(seconds=1)
    assert record_of(cluster.rollout.status.moves).keys() == {"uid-w0"}


@pytest.mark.parametrize("is_paused", [True, False])
def test_what_moves_is_looked_at_in_time_while_the_rollout_is_held_too(*, is_paused: bool) -> None:
    cluster = Cluster(2, canary=0, wave_size=1)
    cluster.step()
    if is_paused:
        cluster.spec(paused=True)
    else:
        cluster.obstacle = Obstacle("NoNode", "no node has the handler")
    step = cluster.step()
    assert cluster.phase == ("Paused" if is_paused else "Blocked")
    assert step.due is not None
    assert step.due > cluster.now


def test_a_rollback_counts_what_is_back_and_what_is_not() -> None:
    cluster = Cluster(4, canary=0, wave_size=4)
    cluster.step()
    cluster.settle()
    # Someone gives one of them a third class meanwhile, and one cannot be changed.
    cluster.change("w3", class_name="third")
    cluster.change("w2", refusal="no")
    cluster.spec(rollback=True)
    step = cluster.step(cut=1)
    assert sorted(move.workload.name for move in step.moves) == ["w0", "w1", "w2"]
    counts = cluster.rollout.status.counts
    assert (counts.total, counts.moved, counts.failed, counts.pending) == (3, 2, 1, 0)
    recorded = record_of(cluster.rollout.status.moves).keys()
    assert recorded == {"uid-w0", "uid-w1", "uid-w2"}
    cluster.step(cut=0)
    counts = cluster.rollout.status.counts
    assert (counts.total, counts.moved, counts.failed, counts.pending) == (3, 1, 1, 1)


def test_a_workload_that_was_never_moved_stays_out_of_a_rollback() -> None:
    cluster = Cluster(2, canary=0, wave_size=1)
    cluster.step()
    cluster.add("own", "new")
    cluster.spec(rollback=True)
    assert [move.workload.name for move in cluster.step().moves] == ["w0"]
    assert cluster.workloads["own"].class_name == "new"
    assert cluster.rollout.status.counts.total == 2


@pytest.mark.parametrize(
    ("stopped", "resumed", "stands"),
    [
        (None, None, False),
        (None, "2026-01-01T00:00:10Z", False),
        ("2026-01-01T00:00:10Z", None, True),
        ("2026-01-01T00:00:10Z", "2026-01-01T00:00:09Z", True),
        ("2026-01-01T00:00:10Z", "2026-01-01T00:00:10Z", False),
        ("2026-01-01T00:00:10Z", "2026-01-01T00:00:11Z", False),
    ],
)
def test_a_stop_stands_until_the_next_resume(
    stopped: str | None, resumed: str | None, stands: bool
) -> None:
    stop = None if stopped is None else RolloutStop(reason="Failed", time=stopped)
    rollout = RuntimeRollout(
        spec=RuntimeRolloutSpec(from_="old", to="new", resumed_at=resumed),
        status=RuntimeRolloutStatus(stop=stop),
    )
    assert standing_stop(rollout) is (stop if stands else None)
