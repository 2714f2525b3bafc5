from __future__ import annotations

import asyncio
import os
import signal

import pytest

from moorage.cli.interruption import Interruptions, interruptible

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_interrupts_and_more_do_not(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = []

    def work() -> None:
        try:
            os.kill(os.getpid(), number)
            steps.append("went on")
        finally:
            for signal_number in SIGNALS:
                os.kill(os.getpid(), signal_number)
            steps.append("cleaned up")

    with pytest.raises(KeyboardInterrupt), interruptible():
        work()
    assert steps == ["cleaned up"]
    assert "cleaning up" in capsys.readouterr().err


def test_while_cleaning_up_nothing_interrupts() -> None:
    with interruptible() as interruptions:
        interruptions.hold_off()
        os.kill(os.getpid(), signal.SIGTERM)


def test_handlers_are_as_they_were() -> None:
    before = [signal.getsignal(signal_number) for signal_number in SIGNALS]
    with interruptible():
        assert [signal.getsignal(signal_number) for signal_number in SIGNALS] != before
    assert [signal.getsignal(signal_number) for signal_number in SIGNALS] == before


def test_tasks_of_a_loop_clean_up_too() -> None:
    steps = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(10)
        finally:
            steps.append("task cleaned up")

    with pytest.raises(KeyboardInterrupt), interruptible() as interruptions:
        interruptions.run(work())
    assert steps == ["task cleaned up"]


def test_a_signal_while_the_loop_is_made_comes_after_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = asyncio.new_event_loop

    def interrupted() -> asyncio.AbstractEventLoop:
        os.kill(os.getpid(), signal.SIGINT)
        return whole()

    monkeypatch.setattr(asyncio.events, "new_event_loop", interrupted)

    async def never() -> None:
        raise AssertionError

    with pytest.raises(KeyboardInterrupt), interruptible() as interruptions:
        interruptions.run(never())


def test_a_signal_in_a_block_that_must_be_whole_interrupts_at_its_end() -> None:
    steps: list[str] = []

    def work(interruptions: Interruptions) -> None:
        with interruptions.later():
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
            steps.append("went on")
        steps.append("not interrupted")

    with interruptible() as interruptions:
        with pytest.raises(KeyboardInterrupt, match="SIG"):
            work(interruptions)
        # One was enough: from here on everything is cleaned up.
        os.kill(os.getpid(), signal.SIGTERM)
    assert steps == ["went on"]


def test_without_a_signal_a_block_ends_as_others_do() -> None:
    with interruptible() as interruptions:
        with interruptions.later():
            pass
        with pytest.raises(KeyError), interruptions.later():
            raise KeyError
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)


def test_what_a_loop_returns_or_raises_is_passed_on() -> None:
    async def answer() -> int:
        return 5

    async def fail() -> None:
        raise KeyError

    async def cancel() -> None:
        raise asyncio.CancelledError

    with interruptible() as interruptions:
        assert interruptions.run(answer()) == 5
        with pytest.raises(KeyError):
            interruptions.run(fail())
        with pytest.raises(asyncio.CancelledError):
            interruptions.run(cancel())
