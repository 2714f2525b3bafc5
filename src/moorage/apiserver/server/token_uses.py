"""Uses of tokens in Secrets: noted in a label once a day; tokens marked as invalid are refused.

Notes wait for a task that writes them, each Secret once; beyond 1,024 they are dropped, and the
next use makes another. Source: apiserver `serviceaccount/legacy` and controlplane
`legacytokentracking` of Kubernetes 1.36.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from moorage.api.clock import Clock
from moorage.api.configuration import Secret
from moorage.api.errors import AlreadyExistsError, NotFoundError, StatusError
from moorage.api.logs import Log
from moorage.api.token_secrets import (
    INVALID_SINCE,
    LAST_USED,
    TOKEN_KEY,
    TRACKING_KEY,
    TRACKING_NAME,
    TRACKING_NAMESPACE,
    TYPE,
    parse_day,
)
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.core import CONFIG_MAP, SECRET
from moorage.apiserver.registry.objects import Objects
from moorage.apiserver.registry.request import SYSTEM_MASTERS, Request, User

MOST_WAITING: Final = 1024

_USER = User(name="system:apiserver", groups=(SYSTEM_MASTERS,))

log = Log(__name__)


class TokenUses:
    """Decides about tokens in Secrets, and notes their use.

    `find_secret(namespace, name)` returns a Secret, or None.
    """

    def __init__(self, find_secret: Callable[[str, str], Secret | None], clock: Clock) -> None:
        self._find_secret = find_secret
        self._clock = clock
        self._waiting: dict[tuple[str, str], None] = {}
        self._has_waiting = asyncio.Event()

    def is_usable(self, namespace: str, name: str) -> bool:
        """Return whether the token in a Secret may be used, and note that it is."""
        secret = self._find_secret(namespace, name)
        if secret is None or secret.type != TYPE:
            return True  # Tokens bound to other Secrets are not tracked.
        if not self._is_noted(secret) and len(self._waiting) < MOST_WAITING:
            self._waiting[namespace, name] = None
            self._has_waiting.set()
        return not secret.metadata.labels.get(INVALID_SINCE)

    def find_token(self, namespace: str, name: str) -> str | None:
        """Return the token in a Secret; None without one, or if the Secret is being deleted."""
        secret = self._find_secret(namespace, name)
        if secret is None or secret.type != TYPE or secret.metadata.deletion_timestamp is not None:
            return None
        try:
            return base64.b64decode(secret.data.get(TOKEN_KEY, ""), validate=True).decode()
        except ValueError:
            return None

    async def run(self, objects: Objects) -> None:
        """Write the notes until cancelled."""
        while True:
            await self._has_waiting.wait()
            self._has_waiting.clear()
            while self._waiting:
                namespace, name = next(iter(self._waiting))
                try:
                    await self._write(objects, namespace, name)
                except NotFoundError:
                    log.debug("secret of a used token is gone", secret=f"{namespace}/{name}")
                except StatusError as error:
                    log.warning("use not noted", secret=f"{namespace}/{name}", error=error)
                finally:
                    self._waiting.pop((namespace, name), None)

    def _is_noted(self, secret: Secret) -> bool:
        # Another API server's clock may be past midnight already.
        today = self._clock.now().date()
        days = (today.isoformat(), (today + timedelta(days=1)).isoformat())
        return secret.metadata.labels.get(LAST_USED) in days

    async def _write(self, objects: Objects, namespace: str, name: str) -> None:
        today = self._clock.now().date().isoformat()

        def make_new(old: Obj | None) -> Obj:
            assert old is not None
            labels = {**old["metadata"].get("labels", {}), LAST_USED: today}
            return {**old, "metadata": {**old["metadata"], "labels": labels}}

        await objects.update(
            _request(), SECRET, SECRET.storage, namespace, name, make_new, is_patch=True
        )


async def start_tracking(objects: Objects, clock: Clock) -> None:
    """Write the ConfigMap with the day since which uses are noted, unless it is there."""
    today = clock.now().date().isoformat()
    present = objects.find(CONFIG_MAP, TRACKING_NAMESPACE, TRACKING_NAME)
    if present is None:
        body = {
            "metadata": {"name": TRACKING_NAME, "namespace": TRACKING_NAMESPACE},
            "data": {TRACKING_KEY: today},
        }
        try:
            await objects.create(
                _request(), CONFIG_MAP, CONFIG_MAP.storage, TRACKING_NAMESPACE, body
            )
        except AlreadyExistsError:
            return  # Another server of the same store created it first.
        return
    if parse_day(present.obj.get("data", {}).get(TRACKING_KEY, "")) is not None:
        return

    def make_new(old: Obj | None) -> Obj:
        assert old is not None
        return {**old, "data": {**old.get("data", {}), TRACKING_KEY: today}}

    await objects.update(
        _request(), CONFIG_MAP, CONFIG_MAP.storage, TRACKING_NAMESPACE, TRACKING_NAME, make_new
    )


def _request() -> Request:
    return Request(user=_USER, is_own=True, user_agent="apiserver/tokens")
