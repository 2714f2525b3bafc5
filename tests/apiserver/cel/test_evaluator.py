"""The evaluator and its worker process: what hostile rules cost, and what comes after them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from moorage.apiserver.cel.evaluator import BusyError, Evaluator, LimitError
from moorage.apiserver.cel.messages import Violation
from moorage.linux.child import Child
from moorage.linux.process import state
from tests.descriptors import open_descriptors

ALL = "[1,2,3,4,5,6,7,8,9,10].all"


def schema(*rules: str) -> dict[str, Any]:
    text = {"type": "string", "x-kubernetes-validations": [{"rule": rule} for rule in rules]}
    return {"type": "object", "properties": {"text": text}}


FINE = schema("self != 'x'")
BROKEN = [Violation("text", "failed rule: self != 'x'", value="x")]


@pytest.fixture
async def evaluator() -> AsyncIterator[Evaluator]:
    before = open_descriptors()
    async with Evaluator() as evaluator:
        yield evaluator
    assert not Child.awaited
    assert open_descriptors() == before


async def test_nothing_is_started_before_the_first_rule(evaluator: Evaluator) -> None:
    assert not Child.awaited
    assert await evaluator.violations("a", FINE, {"text": "x"}, None) == BROKEN
    assert len(Child.awaited) == 1


async def test_each_key_has_its_own_schema(evaluator: Evaluator) -> None:
    assert await evaluator.violations("a", FINE, {"text": "x"}, None) == BROKEN
    assert await evaluator.violations("b", schema("true"), {"text": "x"}, None) == []
    assert await evaluator.violations("a", FINE, {"text": "x"}, None) == BROKEN
    assert await evaluator.violations("c", {"type": "object"}, {"text": "x"}, None) == []


async def test_rules_are_compiled(evaluator: Evaluator) -> None:
    assert await evaluator.schema_problems(FINE) == []
    (problem,) = await evaluator.schema_problems(schema("self +"))
    assert problem.path == ".properties[text].x-kubernetes-validations[0].rule"


async def test_a_rule_of_another_version_that_does_not_compile(evaluator: Evaluator) -> None:
    (violation,) = await evaluator.violations("a", schema("absent()"), {"text": "x"}, None)
    assert violation.detail.startswith("rule compile error: ERROR: <input>:1:7: undeclared")
    assert violation == Violation("", violation.detail, value="object")


async def test_definitions_may_take_longer_than_the_rules_of_an_object() -> None:
    wide = {
        "type": "object",
        "properties": {f"f{index}": {"type": "string"} for index in range(2000)},
    }
    rule = {"x-kubernetes-validations": [{"rule": "self.f0 != 'x'"}]}
    large = {"type": "object", "properties": {f"o{index}": {**wide, **rule} for index in range(4)}}
    async with Evaluator(deadline_s=0.01) as evaluator:
        assert await evaluator.schema_problems(large) == []
    # A host with other load needs a tenth of a second for the rules alone.
    async with Evaluator(deadline_s=1) as evaluator:
        new = {f"o{index}": {"f0": "a"} for index in range(4)}
        for _ in range(2):
            assert await evaluator.violations("large", large, new, None) == []


# Texts of one character cost nothing in lists, but take their time: more than three seconds, since
# each rule stays below the limit of costs.
SLOW = schema(*[f"{ALL}(a, {ALL}(b, !self.split('').isSorted()))"] * 10)
SLOW_TEXT = {"text": "ab" * 10_000}


async def test_rules_that_need_much_memory_end_their_worker_alone() -> None:
    # Lists of one list take no memory until a function written in Python is called with them.
    thousand = "cel.bind(a, lists.range(1000), cel.bind(b, a.map(i, a), "
    bomb = schema(f"{thousand}a.map(i, b).indexOf(1) < 0))")
    async with Evaluator(deadline_s=60) as evaluator:
        with pytest.raises(LimitError, match="needed more memory"):
            await evaluator.violations("bomb", bomb, {"text": "x" * 50_000}, None)
        assert await evaluator.violations("a", FINE, {"text": "x"}, None) == BROKEN


async def test_rules_that_take_long_end_their_worker_alone() -> None:
    async with Evaluator(deadline_s=0.2) as evaluator:
        assert await evaluator.violations("a", FINE, {"text": "y"}, None) == []
        with pytest.raises(LimitError, match=r"the rules took longer than 0\.2 s"):
            await evaluator.violations("slow", SLOW, SLOW_TEXT, None)
        assert await evaluator.violations("a", FINE, {"text": "x"}, None) == BROKEN


async def test_the_first_rules_have_no_more_time_than_others() -> None:
    async with Evaluator(deadline_s=0.2) as evaluator:
        for _ in range(2):
            with pytest.raises(LimitError, match="the rules took longer"):
                await evaluator.violations("slow", SLOW, SLOW_TEXT, None)


async def test_others_wait_once_for_rules_that_take_long() -> None:
    async with Evaluator(deadline_s=1.0) as evaluator:
        assert await evaluator.violations("a", FINE, {"text": "x"}, None) == BROKEN
        with pytest.raises(LimitError):
            await evaluator.violations("slow", SLOW, SLOW_TEXT, None)
        assert await evaluator.violations("a", FINE, {"text": "x"}, None) == BROKEN
        slow = [
            asyncio.create_task(evaluator.violations("slow", SLOW, SLOW_TEXT, None))
            for _ in range(5)
        ]
        for _ in range(20):
            assert await evaluator.violations("a", FINE, {"text": "x"}, None) == BROKEN
        assert not any(task.done() for task in slow)
        for task in slow:
            task.cancel()
        await asyncio.wait(slow)


async def test_a_client_that_goes_away_leaves_the_worker_to_others(evaluator: Evaluator) -> None:
    await evaluator.violations("a", FINE, {"text": "x"}, None)
    (pid,) = Child.awaited
    for _ in range(3):
        asking = asyncio.create_task(evaluator.violations("a", FINE, {"text": "x"}, None))
        for _ in range(5):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
    assert await evaluator.violations("b", schema("true"), {"text": "x"}, None) == []
    assert set(Child.awaited) == {pid}


async def test_a_worker_that_was_killed_is_replaced(evaluator: Evaluator) -> None:
    await evaluator.violations("a", FINE, {"text": "x"}, None)
    (pid,) = Child.awaited
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(LimitError):
        await evaluator.violations("a", FINE, {"text": "x"}, None)
    assert await evaluator.violations("a", FINE, {"text": "x"}, None) == BROKEN


async def test_a_request_that_is_given_up_does_not_answer_the_next(evaluator: Evaluator) -> None:
    await evaluator.violations("a", FINE, {"text": "x"}, None)
    asking = asyncio.create_task(evaluator.violations("a", FINE, {"text": "x"}, None))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert await evaluator.violations("b", schema("true"), {"text": "x"}, None) == []


async def test_many_requests_wait_and_too_many_are_refused(evaluator: Evaluator) -> None:
    asked = [evaluator.violations("a", FINE, {"text": "x"}, None) for _ in range(50)]
    assert await asyncio.gather(*asked) == [BROKEN] * 50
    async with Evaluator(waiting=3) as other:
        asked = [other.violations("a", FINE, {"text": "x"}, None) for _ in range(5)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(answer) for answer in answers] == [list] * 3 + [BusyError] * 2


async def test_a_worker_that_cannot_start_is_an_error(tmp_path: Path) -> None:
    async with Evaluator(python=str(tmp_path / "none")) as evaluator:
        with pytest.raises(LimitError):
            await evaluator.violations("a", FINE, {"text": "x"}, None)


async def test_the_worker_ends_with_its_evaluator() -> None:
    async with Evaluator() as evaluator:
        await evaluator.violations("a", FINE, {"text": "x"}, None)
        (pid,) = Child.awaited
    assert not state(pid)
