"""No sandbox of a pod is ever made under another handler than the one it was admitted with.

Every way by which an agent comes to call RunPodSandbox, on an engine that reports handlers and on
one that does not (CRI-O).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from moorage.api.pods import Pod
from tests.node.objects import a_pod
from tests.node.pods.lives import Life, living


@pytest.fixture(params=[True, False], ids=["reports", "silent"])
async def life(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Life]:
    async with living(tmp_path) as life:
        life.engine.reports_handlers = request.param
        life.engine.handlers = {"", "crun", "kata"}
        life.api.add_class("fast", "crun")
        yield life


def fast_pod() -> Pod:
    return a_pod(
        meta={"creationTimestamp": "2026-01-01T00:00:05Z"},
        runtimeClassName="fast",
        terminationGracePeriodSeconds=1,
    )


def sandboxes(life: Life) -> list[str]:
    """The handlers that sandboxes were asked for, in order."""
    return [call.partition(" ")[2] for call in life.engine.calls if call.startswith("run_sandbox")]


async def begin(life: Life) -> None:
    life.begin(fast_pod())
    await life.until(lambda: life.engine.running == ["app"])


async def stop_from_outside(life: Life) -> None:
    """The sandbox is stopped by someone else; return when there is another."""
    count = len(sandboxes(life))
    life.engine.kill_sandbox()
    await life.look()
    await life.until(lambda: len(sandboxes(life)) > count and life.engine.running == ["app"])


async def test_class_deleted_then_sandbox_stopped(life: Life) -> None:
    await begin(life)
    life.api.classes.clear()
    await stop_from_outside(life)
    assert sandboxes(life) == ["crun", "crun"]
    assert "RuntimeClassGone" in life.events.reasons
    assert any('goes on under handler "crun"' in message for message in life.events.recorded)


async def test_class_created_again_with_another_handler_then_sandbox_stopped(life: Life) -> None:
    await begin(life)
    life.api.add_class("fast", "kata", "2026-01-01T01:00:00Z")
    await stop_from_outside(life)
    assert sandboxes(life) == ["crun", "crun"]
    replaced = [
        message for message in life.events.recorded if message.startswith("RuntimeClassReplaced")
    ]
    assert len(replaced) == 1
    assert 'names handler "kata" now: this pod stays under handler "crun"' in replaced[0]


@pytest.mark.parametrize("later", [None, "kata"])
async def test_class_gone_or_changed_then_the_agent_restarts(life: Life, later: str | None) -> None:
    await begin(life)
    life.api.classes.clear()
    if later is not None:
        life.api.add_class("fast", later, "2026-01-01T01:00:00Z")
    await life.restart_agent()
    await stop_from_outside(life)
    assert sandboxes(life) == ["crun", "crun"]


async def test_gate_turned_off_then_the_agent_restarts(life: Life) -> None:
    await begin(life)
    life.has_classes_enabled = False
    await life.restart_agent()
    await stop_from_outside(life)
    assert sandboxes(life) == ["crun", "crun"]


async def test_machine_rebooted_and_class_gone(life: Life) -> None:
    """The engine has nothing of the pod any more; its directory has the record."""
    await begin(life)
    life.api.classes.clear()
    life.engine.forget_everything()
    await life.restart_agent()
    await life.until(lambda: life.engine.running == ["app"])
    assert sandboxes(life) == ["crun", "crun"]


async def test_pod_waits_for_its_handler_while_the_class_changes(life: Life) -> None:
    life.engine.handlers = {"", "kata"}
    life.begin(fast_pod())
    await life.until(lambda: "FailedCreatePodSandBox" in life.events.reasons)
    life.api.add_class("fast", "kata", "2026-01-01T01:00:00Z")
    tries = len(sandboxes(life))
    await life.until(lambda: len(sandboxes(life)) > tries)
    assert set(sandboxes(life)) == {"crun"}
    assert life.engine.running == []
    assert any(
        'admitted under handler "crun" of RuntimeClass "fast"' in message
        and "delete the pod to use what it names now" in message
        for message in life.events.recorded
    )
    # The handler comes: the pod starts under it, not under its class's new one.
    life.engine.handlers = {"", "crun", "kata"}
    life.worker.retry_sandbox()
    await life.until(lambda: life.engine.running == ["app"])
    assert set(sandboxes(life)) == {"crun"}


async def test_pod_waits_for_its_handler_while_the_agent_restarts(life: Life) -> None:
    life.engine.handlers = {""}
    life.begin(fast_pod())
    await life.until(lambda: "FailedCreatePodSandBox" in life.events.reasons)
    life.api.add_class("fast", "", "2026-01-01T01:00:00Z")
    await life.restart_agent()
    tries = len(sandboxes(life))
    await life.until(lambda: len(sandboxes(life)) > tries)
    assert set(sandboxes(life)) == {"crun"}


async def test_handler_removed_and_added_again(life: Life) -> None:
    await begin(life)
    life.engine.handlers = {""}
    life.engine.kill_sandbox()
    await life.look()
    await life.until(lambda: "FailedCreatePodSandBox" in life.events.reasons)
    assert life.engine.running == []
    life.engine.handlers = {"", "crun"}
    life.worker.retry_sandbox()
    await life.until(lambda: life.engine.running == ["app"])
    assert set(sandboxes(life)) == {"crun"}


async def test_engine_that_runs_another_handler_than_asked_for(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        life.api.add_class("fast", "crun")
        life.engine.runs_everything_under = "runc"
        life.begin(fast_pod())
        await life.until(lambda: "FailedCreatePodSandBox" in life.events.reasons)
        assert (
            'asked for handler "crun" and made sandbox s1 under "runc"' in life.events.recorded[0]
        )
        assert "stop_sandbox s1" in life.engine.calls
        assert life.engine.running == []


# Sandboxes of an earlier version, without owner and handler of today's form


async def test_earlier_sandbox_on_a_silent_engine_with_its_class_still_there(life: Life) -> None:
    await begin(life)
    life.engine.age_sandboxes()
    life.forget_records()
    await life.restart_agent()
    await life.until(lambda: life.context.classes.known_handler(fast_pod(), life.view) == "crun")
    life.api.classes.clear()
    await stop_from_outside(life)
    assert sandboxes(life) == ["crun", "crun"]


@pytest.mark.parametrize("later", [None, "kata"])
async def test_earlier_sandbox_on_a_silent_engine_with_its_class_gone_or_changed(
    tmp_path: Path, later: str | None
) -> None:
    async with living(tmp_path) as life:
        life.engine.reports_handlers = False
        life.engine.handlers = {"", "crun", "kata"}
        life.api.add_class("fast", "crun")
        await begin(life)
        life.engine.age_sandboxes()
        life.forget_records()
        life.api.classes.clear()
        if later is not None:
            life.api.add_class("fast", later, "2026-01-01T01:00:00Z")
        await life.restart_agent()
        life.engine.kill_sandbox()
        await life.look()
        await life.until(lambda: "FailedCreatePodSandBox" in life.events.reasons)
        assert sandboxes(life) == ["crun"]
        assert any(
            "is not known" in message and "delete the pod" in message
            for message in life.events.recorded
        )
