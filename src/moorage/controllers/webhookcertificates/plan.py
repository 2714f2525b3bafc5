"""Plan of a rotation: which step of the webhook's certificate is due. Pure.

    KEEP ──30 days before expiry──▶ PREPARE ──10 minutes──▶ PROMOTE ──1 hour──▶ RETIRE ──▶ KEEP
     any state ──the pair is missing, damaged, expiring, not valid yet or of other names──▶ ISSUE

PREPARE makes the next pair and has API servers trust both authorities, while replicas serve the
present one; PROMOTE has replicas serve the next one, each when it sees the file change; RETIRE
drops the old authority once no replica can serve its certificate. So neither replica is refused in
between. ISSUE cannot wait: the authorities that API servers trust are kept beside the new one.
"""

from __future__ import annotations

import enum
from datetime import datetime, timedelta

import msgspec

from moorage.controllers.webhookcertificates.issuing import ServingPair

RENEW_BEFORE = timedelta(days=30)
TRUSTED_AFTER = timedelta(minutes=10)
"""Time for all API servers to see a webhook configuration."""
UNUSED_AFTER = timedelta(hours=1)
"""Time for all replicas to see a Secret in their files."""
_URGENT = TRUSTED_AFTER + timedelta(hours=1)
_MOST_OLD = 2
_LOOK_AGAIN = timedelta(hours=12)


class Step(enum.Enum):
    """What is done next."""

    KEEP = "keep"
    ISSUE = "issue"
    PREPARE = "prepare"
    PROMOTE = "promote"
    RETIRE = "retire"


class Certificates(msgspec.Struct, frozen=True):
    """The certificates of a webhook: what it serves, what it will serve, what is still trusted.

    `changed` is when the last step was taken, None if that is not known.
    """

    current: ServingPair | None = None
    next: ServingPair | None = None
    old: tuple[str, ...] = ()
    changed: datetime | None = None

    @property
    def bundle(self) -> str:
        """Return the authorities that API servers must trust, as PEM text."""
        pairs = (self.current, self.next)
        present = [pair.authority for pair in pairs if pair is not None]
        return "".join(dict.fromkeys([*present, *self.old]))


def next_step(
    present: Certificates, hosts: frozenset[str], now: datetime
) -> tuple[Step, timedelta]:
    """Return the step that is due, and after which time to look again."""
    current = present.current
    if current is None or current.hosts != hosts or current.expires - now < _URGENT:
        return Step.ISSUE, timedelta()
    if current.begins > now:
        # Issued by a clock that was ahead by more than the skew that certificates allow.
        return Step.ISSUE, timedelta()
    since = now - present.changed if present.changed is not None else timedelta()
    # A clock that was set back must not stop a rotation for ever.
    since = max(since, timedelta())
    if present.next is not None:
        following = present.next
        is_due = following.expires - now < RENEW_BEFORE
        if following.hosts != hosts or is_due or following.begins > now:
            return Step.PREPARE, timedelta()
        if present.changed is not None and since >= TRUSTED_AFTER:
            return Step.PROMOTE, timedelta()
        return Step.KEEP, TRUSTED_AFTER - since
    if current.expires - now < RENEW_BEFORE:
        return Step.PREPARE, timedelta()
    if present.old:
        if present.changed is not None and since >= UNUSED_AFTER:
            return Step.RETIRE, timedelta()
        return Step.KEEP, UNUSED_AFTER - since
    return Step.KEEP, min(_LOOK_AGAIN, current.expires - RENEW_BEFORE - now)


def after_step(
    present: Certificates, step: Step, issued: ServingPair | None, now: datetime
) -> Certificates:
    """Return the certificates after a step; `issued` is the new pair of ISSUE and PREPARE."""
    current = present.current
    match step:
        case Step.ISSUE:
            pairs = (current, present.next)
            kept = [pair.authority for pair in pairs if pair is not None and pair.expires > now]
            old = tuple(dict.fromkeys([*kept, *present.old]))[:_MOST_OLD]
            return Certificates(issued, None, old, now)
        case Step.PREPARE:
            return Certificates(current, issued, present.old, now)
        case Step.PROMOTE:
            assert current is not None
            old = tuple(dict.fromkeys([current.authority, *present.old]))[:_MOST_OLD]
            return Certificates(present.next, None, old, now)
        case Step.RETIRE:
            return Certificates(current, present.next, (), now)
    # The time of the last step was lost.
    return msgspec.structs.replace(present, changed=present.changed or now)
