from __future__ import annotations

from moorage.node.pod_facts.labels import container_hash
from moorage.node.pods.backoff import FORGET_S, RestartBackoff
from tests.clocks import START_S
from tests.node.objects import a_container, container_record, exited


def test_the_first_restart_is_at_once_the_next_ones_double_up_to_five_minutes() -> None:
    backoff, moment_s, pauses = RestartBackoff(), 0.0, []
    for count in range(8):
        ended = exited(restarts=count, created_s=moment_s, finished_s=moment_s + 1)
        pauses.append(backoff.pause_s(ended))
        moment_s = backoff.ready_s(ended) - START_S
        backoff.restarted(ended, START_S + moment_s)
    assert pauses == [0, 10, 20, 40, 80, 160, 300, 300]


def test_the_pause_is_counted_from_the_end() -> None:
    backoff = RestartBackoff()
    backoff.restarted(exited(finished_s=2), START_S + 2)
    assert backoff.ready_s(exited(restarts=1, created_s=3, finished_s=30)) == START_S + 40


def test_a_long_run_is_forgiven() -> None:
    backoff = RestartBackoff()
    backoff.restarted(exited(finished_s=2), START_S + 2)
    almost = exited(restarts=1, created_s=3, finished_s=2 + FORGET_S)
    enough = exited(restarts=1, created_s=3, finished_s=3 + FORGET_S)
    assert (backoff.pause_s(almost), backoff.pause_s(enough)) == (10, 0)
    backoff.restarted(enough, START_S + 3 + FORGET_S)
    assert backoff.pause_s(exited(restarts=2, created_s=605, finished_s=606)) == 10


def test_a_restarted_agent_finds_the_pauses_in_the_containers_records() -> None:
    counts = (0, 1, 2, 5, 6, 60)
    pauses = [
        RestartBackoff().pause_s(exited(restarts=count, created_s=5, finished_s=6))
        for count in counts
    ]
    assert pauses == [0, 10, 20, 160, 300, 300]


def test_pauses_double_again_after_that() -> None:
    backoff = RestartBackoff()
    backoff.restarted(exited(restarts=2, created_s=5, finished_s=6), START_S + 26)
    assert backoff.pause_s(exited(restarts=3, created_s=27, finished_s=28)) == 40


def test_another_image_has_not_failed_yet() -> None:
    backoff = RestartBackoff()
    backoff.restarted(exited(), START_S + 2)
    other = container_record(hash=container_hash(a_container(image="app:2")))
    assert backoff.pause_s(exited(created_s=3, memory=other)) == 0


def test_containers_do_not_share_pauses() -> None:
    backoff = RestartBackoff()
    backoff.restarted(exited("a"), START_S + 2)
    assert backoff.pause_s(exited("b")) == 0
