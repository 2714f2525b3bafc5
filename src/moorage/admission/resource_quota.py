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
from moorage.admission.limited_resources import (
    LimitedResource,
    limited_amounts,
    limited_scopes,
    shown_scopes,
)
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


class UncoveredScopesError(InternalError):
    """No quota covers a scope that is limited; the answer has no reason, as upstream's."""

    reason = ""


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

    `quotas` returns the quotas of a namespace. What is `limited` needs one.
    """

    name = "ResourceQuota"
    scope = Scope.of([ANY], [CREATE, UPDATE], ["", RESIZE])
    mutate = None

    def __init__(
        self,
        quotas: Callable[[str], Sequence[ResourceQuota]],
        write_used: WriteUsed,
        clock: Clock,
        limited: Sequence[LimitedResource] = (),
    ) -> None:
        self._quotas = quotas
        self._limited = limited
        self._has_limited_scopes = any(rule.scopes for rule in limited)
        self._write_used = write_used
        self._clock = clock
        self._waiting: dict[str, list[_Waiter]] = {}
        self._running: dict[str, asyncio.Task[None]] = {}

    def validate(self, attributes: Attributes) -> Awaitable[None] | None:
        """Return the charging of a write, None where no quota can concern it."""
        namespace, resource = attributes.namespace, attributes.kind.resource
        if not namespace or resource in _IGNORED:
            return None
        if not self._quotas(namespace) and not self._limits(resource):
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

    def _limits(self, resource: str) -> bool:
        """Return whether objects of a resource may need a quota."""
        return self._has_limited_scopes or any(rule.resource == resource for rule in self._limited)

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
                self._charge(accounts, waiter, now)
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

    def _charge(self, accounts: list[_Account], waiter: _Waiter, now: datetime) -> None:
        """Count what a write uses of its quotas. Raises ForbiddenError, InternalError."""
        charge = waiter.charge
        concerned = [(account, _concerned(account, waiter)) for account in accounts]
        subject = [(account, names) for account, names in concerned if names is not None]
        if not subject and not self._limited:
            return
        usage = charge.usage(waiter.new, now)
        deltas = [(account, _delta(account, waiter, usage, now)) for account, _ in subject]
        if self._limited:
            self._check_covered(accounts, waiter, subject, deltas, usage, now)
        for account, delta in deltas:
            _count(account, waiter, delta)

    def _check_covered(
        self,
        accounts: list[_Account],
        waiter: _Waiter,
        subject: list[tuple[_Account, list[str]]],
        deltas: list[tuple[_Account, Amounts]],
        usage: Amounts,
        now: datetime,
    ) -> None:
        """Check that quotas cover what is limited, if a write uses more of anything.

        Raises ForbiddenError for amounts, and as upstream a plain error of the server for scopes.
        """
        charge, new, old = waiter.charge, waiter.new, waiter.old
        used = [delta for _, delta in deltas]
        if not subject:
            used = [usage if old is None else increase(usage, charge.usage(old, now))]
        if not any(amount for amounts in used for amount in amounts.values()):
            return
        covered = {name for _, names in subject for name in names}
        resource = waiter.attributes.kind.resource
        if missing := limited_amounts(self._limited, resource, usage) - covered:
            raise refused(
                waiter.attributes, f"insufficient quota to consume: {','.join(sorted(missing))}"
            )
        covered_scopes = {
            selector.scope_name
            for account in accounts
            for selector in account.quota.spec.selectors
            if charge.is_in(selector, new)
        }
        scopes = [
            scope
            for scope in limited_scopes(self._limited, charge, new)
            if scope.scope_name not in covered_scopes
        ]
        if scopes:
            raise UncoveredScopesError(
                f"insufficient quota to match these scopes: {shown_scopes(scopes)}"
            )


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


def _concerned(account: _Account, waiter: _Waiter) -> list[str] | None:
    """Return which amounts of a quota a write concerns, None if it is not subject to it.

    Raises ForbiddenError where it cannot be counted.
    """
    quota, charge, attributes = account.quota, waiter.charge, waiter.attributes
    hard = quota.status.hard
    if not is_subject(quota.spec, hard, charge, waiter.new):
        return None
    name, names = quota.metadata.name, charge.concerned(hard)
    if omission := charge.omission(names, waiter.new):
        raise refused(attributes, f"failed quota: {name}: {omission}")
    if not quota.status.used.keys() >= set(names):
        resources = ",".join(sorted(names))
        raise refused(attributes, f"status unknown for quota: {name}, resources: {resources}")
    return names


def _delta(account: _Account, waiter: _Waiter, usage: Amounts, now: datetime) -> Amounts:
    """Return what a write uses more of a quota. `usage` is that of the new object."""
    charge, quota = waiter.charge, account.quota
    old = waiter.old
    if old is not None and is_subject(quota.spec, quota.status.hard, charge, old):
        return increase(usage, charge.usage(old, now))
    return usage


def _count(account: _Account, waiter: _Waiter, delta: Amounts) -> None:
    """Count what a write uses. Raises ForbiddenError when the quota does not have as much."""
    quota = account.quota
    hard = quota.status.hard
    asked = {key: amount for key, amount in masked(delta, hard).items() if amount}
    used = added(account.used, asked)
    limits = parsed(hard)
    if too_much := exceeded(masked(used, asked), limits):
        raise refused(
            waiter.attributes,
            f"exceeded quota: {quota.metadata.name}, requested: {shown(masked(asked, too_much))}, "
            f"used: {shown(masked(account.used, too_much))}, "
            f"limited: {shown(masked(limits, too_much))}",
        )
    account.used = used
