"""Cleaner of token Secrets that an account lists and no one uses: marked, deleted a year later.

Such Secrets were made for each account by Kubernetes before 1.24; users bring them with their
manifests. Those made by hand, which no account lists, stay. Source: API docs "Legacy ServiceAccount
token cleaner", KEP-2799.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import Enum

from moorage.api.clock import Clock, parse_time
from moorage.api.configuration import Secret, ServiceAccount
from moorage.api.errors import ConflictError, NotFoundError
from moorage.api.logs import Log
from moorage.api.pod_references import secret_names
from moorage.api.token_secrets import (
    ACCOUNT_NAME,
    ACCOUNT_UID,
    INVALID_SINCE,
    LAST_USED,
    TRACKING_KEY,
    TRACKING_NAME,
    TRACKING_NAMESPACE,
    TYPE,
    parse_day,
)
from moorage.controllers.loop import Loop
from moorage.controllers.requests import locked
from moorage.wire.client.resources import CONFIG_MAPS, PODS, SECRETS, SERVICE_ACCOUNTS
from moorage.wire.client.rest import Client

_INTERVAL_S = 24 * 3600.0
_DAY = timedelta(days=1)
_KEY = ""

log = Log(__name__)


class Step(Enum):
    """What is done about a Secret."""

    KEEP = "keep"
    MARK = "mark"
    DELETE = "delete"


def step_of(secret: Secret, now: datetime, period: timedelta) -> Step:
    """Return the action for a token Secret that an account lists and no pod mounts."""
    meta, first_kept = secret.metadata, (now - period).date().isoformat()
    if secret.type != TYPE or meta.deletion_timestamp is not None:
        return Step.KEEP
    if meta.creation_timestamp is None or parse_time(meta.creation_timestamp) >= now - period:
        return Step.KEEP
    last_used = meta.labels.get(LAST_USED)
    # A malformed label says nothing about the last use.
    if last_used is not None and (parse_day(last_used) is None or last_used >= first_kept):
        return Step.KEEP
    marked = meta.labels.get(INVALID_SINCE, "")
    if parse_day(marked) is None:
        return Step.MARK
    return Step.KEEP if marked >= first_kept else Step.DELETE


def is_listed(secret: Secret, account: ServiceAccount) -> bool:
    """Return whether a Secret was made for this very account, which lists it."""
    uid = secret.metadata.annotations.get(ACCOUNT_UID, "")
    if uid not in ("", account.metadata.uid):
        return False
    return any(reference.name == secret.metadata.name for reference in account.secrets)


class LegacyTokenCleaner:
    """Looks at all token Secrets once a day. `period` is how long a token may be unused."""

    def __init__(self, client: Client, period: timedelta, clock: Clock) -> None:
        self._client = client
        self._period = period
        self._clock = clock
        self.run = Loop("legacy token cleaner", self._reconcile, (), clock, first=[_KEY]).run

    async def _reconcile(self, key: str) -> float:
        del key
        now = self._clock.now()
        if await self._is_tracked_long_enough(now):
            listed = await self._client.list(SECRETS, field_selector=f"type={TYPE}")
            stale = [
                (secret, step)
                for secret in listed.items
                if (step := step_of(secret, now, self._period)) is not Step.KEEP
            ]
            mounted: dict[str, set[str]] = {}
            for secret, step in stale:
                namespace = secret.metadata.namespace
                if not await self._has_account(secret):
                    continue
                if namespace not in mounted:
                    pods = await self._client.list(PODS, namespace)
                    mounted[namespace] = _names(map(secret_names, pods.items))
                if secret.metadata.name not in mounted[namespace]:
                    await self._take(secret, step, now)
        return _INTERVAL_S

    async def _is_tracked_long_enough(self, now: datetime) -> bool:
        try:
            tracking = await self._client.get(CONFIG_MAPS, TRACKING_NAME, TRACKING_NAMESPACE)
        except NotFoundError:
            return False
        since = parse_day(tracking.data.get(TRACKING_KEY, ""))
        if since is None:
            return False
        # Uses of the first day may have come before it was tracked.
        return now.date() >= since + _DAY + self._period

    async def _has_account(self, secret: Secret) -> bool:
        name = secret.metadata.annotations.get(ACCOUNT_NAME, "")
        if not name:
            return False
        try:
            account = await self._client.get(SERVICE_ACCOUNTS, name, secret.metadata.namespace)
        except NotFoundError:
            return False
        return is_listed(secret, account)

    async def _take(self, secret: Secret, step: Step, now: datetime) -> None:
        meta = secret.metadata
        log.info("unused token", secret=f"{meta.namespace}/{meta.name}", step=step.value)
        try:
            if step is Step.MARK:
                labels = {INVALID_SINCE: now.date().isoformat()}
                patch = {"metadata": {**locked(meta), "labels": labels}}
                await self._client.patch(SECRETS, meta.name, patch, meta.namespace)
            else:
                await self._client.delete(
                    SECRETS, meta.name, meta.namespace, resource_version=meta.resource_version
                )
        except (NotFoundError, ConflictError):
            return  # It was used, changed or deleted meanwhile: the next day decides again.


def _names(sets: Iterable[set[str]]) -> set[str]:
    return {name for names in sets for name in names}
