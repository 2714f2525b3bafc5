"""Quota ledger: charges writes of a namespace together, by one write of each quota.

What is used stands in the status of a quota, which is counted up before the object is stored. The
writes that come while a quota is written wait, and are charged at once by the next write; a quota
that changed meanwhile is charged again as it is then. So a quota is never overshot, and a hundred
pods cost a few writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from moorage.api.clock import Clock
from moorage.api.errors import ConflictError, InternalError, StatusError
from moorage.api.logs import Log
from moorage.api.meta import Object
from moorage.api.quantity import parse, to_texts
from moorage.apiserver.quota import Amounts
from moorage.apiserver.registry.request import Attributes

_TRIES = 4

_log = Log(__name__)


class Status(Protocol):
    """The status of a quota."""

    @property
    def used(self) -> Mapping[str, Any]: ...


class Quota(Protocol):
    """A quota as the ledger sees it."""

    @property
    def status(self) -> Status: ...


Q = TypeVar("Q", bound=Quota)


class Charged(msgspec.Struct):
    """A write that waits for its charge: its object, and the one before."""

    attributes: Attributes
    new: Object
    old: Object | None
    done: asyncio.Future[None] = msgspec.field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def settle(self, error: StatusError | None = None) -> None:
        """Let the write go on, or refuse it; the first time counts."""
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)


class Account(Generic[Q]):
    """A quota, and what is used of it once the writes before are charged."""

    def __init__(self, quota: Q) -> None:
        self.quota = quota
        self.used: Amounts = {name: parse(text) for name, text in quota.status.used.items()}
        self._before = self.used

    @property
    def is_changed(self) -> bool:
        return self.used != self._before


class QuotaLedger(Generic[Q]):
    """Charges the writes of each namespace.

    `quotas` returns the quotas of a namespace. `charge` counts in their accounts what a write uses,
    and raises StatusError when one does not have as much. `write_used` writes `status.used` of a
    quota as it was read, and raises ConflictError if it has changed.
    """

    def __init__(
        self,
        quotas: Callable[[str], Sequence[Q]],
        charge: Callable[[Sequence[Account[Q]], Charged, datetime], None],
        write_used: Callable[[Q, dict[str, str]], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._quotas = quotas
        self._charge = charge
        self._write_used = write_used
        self._clock = clock
        self._waiting: dict[str, list[Charged]] = {}
        self._running: dict[str, asyncio.Task[None]] = {}

    async def charge(self, namespace: str, write: Charged) -> None:
        """Queue a write, and wait for its turn. Raises StatusError."""
        self._waiting.setdefault(namespace, []).append(write)
        if namespace not in self._running:
            self._running[namespace] = asyncio.create_task(self._work(namespace))
        await write.done

    async def _work(self, namespace: str) -> None:
        try:
            while writes := self._waiting.pop(namespace, None):
                failure: StatusError = InternalError.of("the quota could not be charged")
                try:
                    await self._settle(namespace, writes)
                except StatusError as error:
                    failure = error
                except Exception:
                    _log.exception("quota not charged", namespace=namespace)
                finally:
                    for write in writes:
                        write.settle(failure)
        finally:
            # In the step that saw that no write waits: one that came a turn later, in a callback
            # of the task's, would neither be charged by this task nor start another.
            del self._running[namespace]

    async def _settle(self, namespace: str, writes: list[Charged]) -> None:
        """Charge writes together. Raises the StatusError of a quota that cannot be written."""
        for attempt in range(_TRIES):
            accounts = [Account(quota) for quota in self._quotas(namespace)]
            charged = self._charge_all(accounts, writes)
            try:
                for account in accounts:
                    if account.is_changed:
                        await self._write_used(account.quota, to_texts(account.used))
            except ConflictError:
                # What is counted already of another quota is corrected by the controller.
                if attempt == _TRIES - 1:
                    raise
                writes = charged
                continue
            for write in charged:
                write.settle()
            return

    def _charge_all(self, accounts: list[Account[Q]], writes: list[Charged]) -> list[Charged]:
        """Charge writes in their order; refused ones are settled. Returns the others."""
        now = self._clock.now()
        charged = []
        for write in writes:
            before = [account.used for account in accounts]
            try:
                self._charge(accounts, write, now)
            except StatusError as error:
                write.settle(error)
                is_undone = True
            else:
                charged.append(write)
                is_undone = write.attributes.request.is_dry_run
            if is_undone:
                for account, used in zip(accounts, before, strict=True):
                    account.used = used
        return charged
