"""Conditions of a pod's resize."""

from __future__ import annotations

from moorage.api.pods import PodStatus
from moorage.node.status.pod import status_of
from moorage.node.status.resizing import ResizeConditions, is_news
from moorage.node.status.writer import status_patch
from tests.node.objects import a_pod, a_view, engine_has, status_inputs, wire_container


def test_only_infeasible_is_not_deferred() -> None:
    waiting = ResizeConditions().deferred("OutOfcpu", "no room", 2, "t1")
    assert waiting.pending is not None
    assert (waiting.pending.type, waiting.pending.reason) == ("PodResizePending", "Deferred")
    never = waiting.deferred("Infeasible", "swap", 2, "t2")
    assert never.pending is not None
    assert (never.pending.reason, never.pending.last_transition_time) == ("Infeasible", "t2")
    assert is_news(waiting.pending, never.pending)


def test_a_new_message_is_no_news_and_no_transition() -> None:
    before = ResizeConditions().deferred("OutOfcpu", "used: 1", 2, "t1")
    after = before.deferred("OutOfcpu", "used: 2", 2, "t2")
    assert after.pending is not None
    assert (after.pending.message, after.pending.last_transition_time) == ("used: 2", "t1")
    assert not is_news(before.pending, after.pending)
    assert is_news(before.pending, before.deferred("OutOfcpu", "used: 1", 3, "t3").pending)


def test_an_error_stays_until_another_resize_begins() -> None:
    begun = ResizeConditions().begun(2, "t1")
    failed = begun.failed("too small", 5, "t2").going_on(6, "t3")
    assert failed.in_progress is not None
    assert (failed.in_progress.reason, failed.in_progress.observed_generation) == ("Error", 2)
    again = failed.begun(3, "t4")
    assert again.in_progress is not None
    assert (again.in_progress.reason, again.in_progress.message) == ("", "")
    assert again.done() == ResizeConditions()


def test_what_an_earlier_agent_reported_is_kept() -> None:
    conditions = ResizeConditions().deferred("OutOfcpu", "m", 2, "t1").going_on(2, "t2")
    assert ResizeConditions.reported(conditions.present) == conditions


RESOURCES = {"requests": {"cpu": "1", "memory": "1Gi"}}


def test_the_status_shows_the_conditions_and_a_patch_removes_them() -> None:
    pod, view = a_pod(wire_container(resources=RESOURCES)), a_view(engine_has())
    resize = ResizeConditions().begun(2, "2026-01-01T00:00:00Z")
    during = status_of(status_inputs(pod, view, resize=resize))
    assert [one.type for one in during.conditions][-1] == "PodResizeInProgress"
    after = status_of(status_inputs(pod, view, before=during))
    patch = status_patch("u", during, after)
    assert patch is not None
    assert {"$patch": "delete", "type": "PodResizeInProgress"} in patch["status"]["conditions"]


def test_a_pod_keeps_its_phase_while_a_container_restarts_for_a_resize() -> None:
    pod = a_pod(restartPolicy="OnFailure")
    view = a_view()
    before = PodStatus(phase="Running")
    status = status_of(status_inputs(pod, view, before=before, is_restarting=True))
    assert status.phase == "Running"
