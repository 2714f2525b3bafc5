"""The ledger of quotas: every write is charged or refused, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from moorage.api.errors import ForbiddenError, InternalError
from moorage.api.pods import Pod
from moorage.apiserver.admission.quota_ledger import Account, Charged, QuotaLedger
from tests.apiserver.admission.writes import pod, write
from tests.clocks import FakeClock

WITHIN_S = 5.0


class Quotas:
    """One quota of a namespace; `fault` is raised when its quotas are read."""

    def __init__(self, refusal: Exception | None = None) -> None:
        self.quota = SimpleNamespace(status=SimpleNamespace(used={}))
        self.refusal = refusal
        self.fault: Exception | None = None
        self.charged = 0
        self.ledger: QuotaLedger[Any] = QuotaLedger(
            self.read, self.charge, self.write_used, FakeClock()
        )

    def read(self, _: str) -> Sequence[Any]:
        if self.fault is not None:
            raise self.fault
        return [self.quota]

    def charge(self, _: Sequence[Account[Any]], __: Charged, ___: datetime) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.charged += 1

    async def write_used(self, _: Any, __: dict[str, str]) -> None:
        raise AssertionError("nothing is counted")

    async def add(self) -> None:
        new = msgspec.convert(pod(), Pod)
        async with asyncio.timeout(WITHIN_S):
            await self.ledger.charge("n", Charged(write(obj=pod()), new, None))


async def test_a_write_that_comes_as_the_last_one_is_settled_is_charged() -> None:
    quotas = Quotas()
    for _ in range(3):
        await quotas.add()
    assert quotas.charged == 3


async def test_each_of_many_parallel_writes_is_refused() -> None:
    quotas = Quotas(ForbiddenError("exceeded quota"))

    async def retry() -> None:
        for _ in range(5):
            with pytest.raises(ForbiddenError, match="exceeded quota"):
                await quotas.add()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(30):
            tasks.create_task(retry())


async def test_a_fault_refuses_its_writes_and_no_later_ones() -> None:
    quotas = Quotas()
    quotas.fault = RuntimeError("broken")
    with pytest.raises(InternalError, match="could not be charged"):
        await quotas.add()
    quotas.fault = None
    await quotas.add()
    assert quotas.charged == 1


async def test_a_write_whose_client_leaves_holds_up_no_other() -> None:
    quotas = Quotas()
    leaving = asyncio.create_task(quotas.add())
    await asyncio.sleep(0)
    leaving.cancel()
    await quotas.add()
    await asyncio.wait([leaving])
    assert leaving.cancelled()
