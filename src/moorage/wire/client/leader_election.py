"""Leader election by a Lease: of several processes one leads, and another takes over when it ends.

    stand by ──the lease is free, or has not changed for its duration──▶ lead ──ends──▶ release
                                                                          └─renewal fails─▶ lost

Times of other machines do not count: a candidate waits for the duration from when it saw the lease
change, on its own clock, so that skew does no harm. It watches the lease, which costs no requests
while the leader renews. A leader that could not renew stops before another may begin
(`renew_deadline_s` < `duration_s`), and one that was paused finds out before its next write, by
`check_lease`. Source: client-go `tools/leaderelection`, but for the latter.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import msgspec

from moorage.api.clock import Clock, format_micro_time, sleep_unless_set
from moorage.api.coordination import Lease, LeaseSpec
from moorage.api.errors import AlreadyExistsError, ConflictError, NotFoundError, StatusError
from moorage.api.logs import Log
from moorage.api.meta import ObjectMeta
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import LEASES
from moorage.wire.client.rest import Client, UnreachableError

_RELEASE_S = 3.0
_MOST_TRANSITIONS = 2**31 - 1

log = Log(__name__)


class LeadershipLostError(Exception):
    """The lease could not be renewed in time, or another process has it."""


class LeaseTiming(msgspec.Struct, frozen=True):
    """Times of an election, in seconds; the defaults are those of client-go.

    A candidate takes a lease that has not changed for `duration_s`. A leader tries to renew every
    `retry_s`, and stops when it has not succeeded for `renew_deadline_s`.
    """

    duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_s: float = 2.0


class Observed(msgspec.Struct, frozen=True):
    """A lease as this process saw it last, and when it saw it change, on its own clock."""

    lease: Lease | None = None
    changed_s: float = 0.0

    def seen(self, lease: Lease | None, now_s: float) -> Observed:
        """Return the observation after another look at the lease."""
        if lease is not None and self.lease is not None and _is_same(lease, self.lease):
            return Observed(lease, self.changed_s)
        return Observed(lease, now_s)

    def free_in_s(self, identity: str, now_s: float, duration_s: float) -> float:
        """Return the seconds until a process may take the lease; 0 if it may now."""
        holder = "" if self.lease is None else self.lease.spec.holder_identity or ""
        if holder in ("", identity):
            return 0.0
        return max(0.0, self.changed_s + duration_s - now_s)


def _is_same(one: Lease, other: Lease) -> bool:
    return (one.metadata.uid, one.spec) == (other.metadata.uid, other.spec)


def next_spec(lease: Lease | None, identity: str, stamp: str, duration_s: float) -> LeaseSpec:
    """Return the specification by which a process takes or renews a lease.

    The time of acquisition stays with the holder; another one is a transition.
    """
    spec = LeaseSpec() if lease is None else lease.spec
    is_held = spec.holder_identity == identity
    transitions = spec.lease_transitions or 0
    return LeaseSpec(
        holder_identity=identity,
        lease_duration_seconds=max(1, int(duration_s)),
        acquire_time=spec.acquire_time if is_held else stamp,
        renew_time=stamp,
        # A number that a hostile hand wrote must not make every takeover invalid.
        lease_transitions=(
            transitions if is_held or lease is None else min(transitions + 1, _MOST_TRANSITIONS)
        ),
    )


class LeaderElector:
    """A candidate for one lease; `identity` is unique to the process."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        clock: Clock,
        timing: LeaseTiming | None = None,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._clock = clock
        self._timing = timing or LeaseTiming()
        self._observed = Observed()
        self._renewed_s = 0.0
        """When the request began that took or renewed the lease last, on this clock."""
        self.is_leader = False

    def check_lease(self) -> None:
        """Raise UnreachableError if this process leads by a lease that it did not renew in time.

        A process that was paused has work that is due before it looks at its lease; another may
        have done that work meanwhile. To be called before each write: `Client.check_writes`.
        """
        left_s = self._renewed_s + self._timing.renew_deadline_s - self._clock.monotonic()
        if self.is_leader and left_s <= 0:
            raise UnreachableError(f"not sent: lease {self._name} was not renewed in time")

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lease, then run `lead`, until cancelled; the lease is released at the end.

        Raises LeadershipLostError, once `lead` has been cancelled, and what `lead` raises.
        """
        self._renewed_s = await self._acquire()
        self.is_leader = True
        log.info("became the leader", lease=self._name, identity=self._identity)
        leading = asyncio.ensure_future(lead())
        renewing = asyncio.ensure_future(self._renew())
        try:
            await asyncio.wait((leading, renewing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (leading, renewing):
                task.cancel()
            await asyncio.gather(leading, renewing, return_exceptions=True)
            self.is_leader = False
            if not _has_failed(renewing):
                await self._release()
        for task in (renewing, leading):
            if not task.cancelled():
                task.result()

    async def _acquire(self) -> float:
        """Return once the lease is taken: the time of this clock before the request that did so."""
        changed = asyncio.Event()
        informer = Informer(
            self._client,
            LEASES,
            namespace=self._namespace,
            field_selector=f"metadata.name={self._name}",
            clock=self._clock,
        )

        def lease_changed(before: Lease | None, after: Lease | None) -> None:
            del before
            self._observed = self._observed.seen(after, self._clock.monotonic())
            changed.set()

        informer.add_handler(lease_changed)
        following = asyncio.ensure_future(informer.run())
        try:
            while True:
                changed.clear()
                now_s = self._clock.monotonic()
                pause_s = self._observed.free_in_s(self._identity, now_s, self._timing.duration_s)
                if not pause_s:
                    if await self._try_once():
                        return now_s
                    # Lost against another candidate, or no answer.
                    pause_s = self._timing.retry_s
                await sleep_unless_set(self._clock, pause_s, changed)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _try_once(self) -> bool:
        """Read the lease and take it if it is free. Returns whether this process has it."""
        try:
            async with asyncio.timeout(self._timing.renew_deadline_s):
                found = await self._read()
                now_s = self._clock.monotonic()
                self._observed = self._observed.seen(found, now_s)
                if self._observed.free_in_s(self._identity, now_s, self._timing.duration_s):
                    return False
                await self._write(found)
        except (AlreadyExistsError, ConflictError):
            return False
        except (StatusError, UnreachableError, TimeoutError) as error:
            log.warning("lease cannot be taken", lease=self._name, error=error)
            return False
        return True

    async def _renew(self) -> None:
        """Renew until cancelled. Raises LeadershipLostError."""
        timing = self._timing
        while True:
            await self._clock.sleep(timing.retry_s)
            began_s = self._clock.monotonic()
            left_s = self._renewed_s + timing.renew_deadline_s - began_s
            if left_s <= 0:
                raise LeadershipLostError(
                    f"lease {self._name} was not renewed within {timing.renew_deadline_s:g} s"
                )
            try:
                async with asyncio.timeout(min(left_s, timing.renew_deadline_s / 2)):
                    await self._renew_once()
            except (StatusError, UnreachableError, TimeoutError) as error:
                log.warning("lease cannot be renewed", lease=self._name, error=error)
            else:
                self._renewed_s = began_s

    async def _renew_once(self) -> None:
        try:
            await self._write(self._observed.lease)
        except (ConflictError, AlreadyExistsError, NotFoundError):
            # Written by another, or deleted: look whose it is.
            found = await self._read()
            if found is not None and found.spec.holder_identity not in (self._identity, "", None):
                raise LeadershipLostError(
                    f"lease {self._name} is held by {found.spec.holder_identity}"
                ) from None
            await self._write(found)

    async def _release(self) -> None:
        """Give the lease back, so that another need not wait for it to expire."""
        lease = self._observed.lease
        if lease is None:
            return
        stamp = format_micro_time(self._clock.now())
        spec = msgspec.structs.replace(
            lease.spec, holder_identity="", lease_duration_seconds=1, renew_time=stamp
        )
        with contextlib.suppress(TimeoutError, StatusError, UnreachableError):
            async with asyncio.timeout(_RELEASE_S):
                await self._put(lease, spec)
                log.info("lease released", lease=self._name)

    async def _read(self) -> Lease | None:
        try:
            return await self._client.get(LEASES, self._name, self._namespace)
        except NotFoundError:
            return None

    async def _write(self, lease: Lease | None) -> None:
        stamp = format_micro_time(self._clock.now())
        await self._put(lease, next_spec(lease, self._identity, stamp, self._timing.duration_s))

    async def _put(self, lease: Lease | None, spec: LeaseSpec) -> None:
        metadata = ObjectMeta(name=self._name, namespace=self._namespace)
        if lease is not None:
            # All of it stays: the installation has labels on it.
            metadata = lease.metadata
        body = {"metadata": msgspec.to_builtins(metadata), "spec": msgspec.to_builtins(spec)}
        if lease is None:
            written = await self._client.create(LEASES, body, self._namespace)
        else:
            written = await self._client.update(LEASES, body, self._name, self._namespace)
        self._observed = self._observed.seen(written, self._clock.monotonic())


def _has_failed(task: asyncio.Future[None]) -> bool:
    return not task.cancelled() and task.done() and task.exception() is not None
