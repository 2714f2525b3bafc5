"""ResourceQuota plugin: charges new objects to the quotas of their namespace, or refuses them.

What is used stands in the status of a quota, which this counts up before the object is stored; the
controller counts it again when objects go. Writes in one namespace that come at once are charged
together, by one write of each quota. Source: apiserver plugin ResourceQuota of Kubernetes 1.37.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

import msgspec

from moorage.admission.chain import ANY, CREATE, RESIZE, UPDATE, Scope
from moorage.admission.refusal import refused
from moorage.api.clock import Clock
from moorage.api.errors import ConflictError, InternalError, StatusError
from moorage.api.meta import Object
from moorage.api.quantity import to_texts
from moorage.api.quotas import ResourceQuota
from moorage.quota import Amounts, Charge, charge_of, is_subject
from moorage.quota.amounts import added, exceeded, increase, masked, parsed, shown
from moorage.registry.request import Attributes

_IGNORED = frozenset(("bindings", "componentstatuses", "events", "events.events.k8s.io"))
_TRIES = 4

WriteUsed = Callable[[ResourceQuota, dict[str, str]], Awaitable[None]]
"""Writes `status.used` of a quota as it was read. Raises ConflictError if it has changed."""


class _Waiter(msgspec.Struct):
    """A write that waits for its charge."""

    attributes: Attributes
    charge: Charge
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


class _Account(msgspec.Struct):
    """A quota, and what is used of it once the writes before are charged."""

    quota: ResourceQuota
    used: Amounts

    @classmethod
    def of(cls, quota: ResourceQuota) -> _Account:
        return cls(quota, parsed(quota.status.used))

    @property
    def is_changed(self) -> bool:
        return self.used != parsed(self.quota.status.used)


class ResourceQuotaAdmission:
    """Charges writes in namespaces that have quotas.

    `quotas` returns the quotas of a namespace.
    """

    name = "ResourceQuota"
    scope = Scope.of([ANY], [CREATE, UPDATE], ["", RESIZE])
    mutate = None

    def __init__(
        self,
        quotas: Callable[[str], Sequence[ResourceQuota]],
        write_used: WriteUsed,
        clock: Clock,
    ) -> None:
        self._quotas = quotas
        self._write_used = write_used
        self._clock = clock
        self._waiting: dict[str, list[_Waiter]] = {}
        self._running: dict[str, asyncio.Task[None]] = {}

    def validate(self, attributes: Attributes) -> Awaitable[None] | None:
        """Return the charging of a write, None where no quota can concern it."""
        namespace = attributes.namespace
        if not namespace or not self._quotas(namespace):
            return None
        resource = attributes.kind.resource
        if resource in _IGNORED:
            return None
        charge = charge_of(resource)
        if not _may_use_more(charge, attributes):
            return None
        old = attributes.old
        waiter = _Waiter(
            attributes,
            charge,
            msgspec.convert(attributes.obj, charge.type),
            None if old is None else msgspec.convert(old, charge.type),
        )
        return self._charged(namespace, waiter)

    async def _charged(self, namespace: str, waiter: _Waiter) -> None:
        """Queue a write, and wait for its turn. Raises StatusError."""
        self._waiting.setdefault(namespace, []).append(waiter)
        if namespace not in self._running:
            task = asyncio.create_task(self._work(namespace))
            self._running[namespace] = task
            task.add_done_callback(lambda _: self._running.pop(namespace, None))
        await waiter.done

    async def _work(self, namespace: str) -> None:
        while waiters := self._waiting.pop(namespace, None):
            failure: StatusError = InternalError.of("the quota could not be charged")
            try:
                await self._settle(namespace, waiters)
            except StatusError as error:
                failure = error
            finally:
                for waiter in waiters:
                    waiter.settle(failure)

    async def _settle(self, namespace: str, waiters: list[_Waiter]) -> None:
        """Charge writes together. Raises the StatusError of a quota that cannot be written."""
        for attempt in range(_TRIES):
            accounts = [_Account.of(quota) for quota in self._quotas(namespace)]
            charged = self._charge_all(accounts, waiters)
            try:
                for account in accounts:
                    if account.is_changed:
                        await self._write_used(account.quota, to_texts(account.used))
            except ConflictError:
                # What is counted already of another quota is corrected by the controller.
                if attempt == _TRIES - 1:
                    raise
                waiters = charged
                continue
            for waiter in charged:
                waiter.settle()
            return

    def _charge_all(self, accounts: list[_Account], waiters: list[_Waiter]) -> list[_Waiter]:
        """Charge writes in their order; refused ones are settled. Returns the others."""
        now = self._clock.now()
        charged = []
        for waiter in waiters:
            before = [account.used for account in accounts]
            try:
                for account in accounts:
                    _charge(account, waiter, now)
            except StatusError as error:
                waiter.settle(error)
                is_undone = True
            else:
                charged.append(waiter)
                is_undone = waiter.attributes.request.is_dry_run
            if is_undone:
                for account, used in zip(accounts, before, strict=True):
                    account.used = used
        return charged


def _may_use_more(charge: Charge, attributes: Attributes) -> bool:
    if attributes.operation == CREATE or charge.sees_updates:
        return True
    if attributes.kind.resource != "pods" or attributes.obj is None or attributes.old is None:
        return False
    if attributes.subresource == RESIZE:
        return True
    # A deadline moves a pod from one scope to the other.
    field_name = "activeDeadlineSeconds"
    return (field_name in attributes.obj["spec"]) != (field_name in attributes.old["spec"])


def _charge(account: _Account, waiter: _Waiter, now: datetime) -> None:
    """Count what a write uses of a quota. Raises ForbiddenError when it does not have as much."""
    quota, charge, attributes = account.quota, waiter.charge, waiter.attributes
    spec, hard = quota.spec, quota.status.hard
    if not is_subject(spec, hard, charge, waiter.new):
        return
    name, names = quota.metadata.name, charge.concerned(hard)
    if omission := charge.omission(names, waiter.new):
        raise refused(attributes, f"failed quota: {name}: {omission}")
    if not quota.status.used.keys() >= set(names):
        resources = ",".join(sorted(names))
        raise refused(attributes, f"status unknown for quota: {name}, resources: {resources}")
    usage = charge.usage(waiter.new, now)
    if waiter.old is not None and is_subject(spec, hard, charge, waiter.old):
        usage = increase(usage, charge.usage(waiter.old, now))
    asked = {key: amount for key, amount in masked(usage, hard).items() if amount}
    used = added(account.used, asked)
    limits = parsed(hard)
    if too_much := exceeded(masked(used, asked), limits):
        raise refused(
            attributes,
            f"exceeded quota: {name}, requested: {shown(masked(asked, too_much))}, "
            f"used: {shown(masked(account.used, too_much))}, "
            f"limited: {shown(masked(limits, too_much))}",
        )
    account.used = used
