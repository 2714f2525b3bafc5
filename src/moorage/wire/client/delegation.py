"""Delegated access: who a request is of, and what that user may do, as the API server says.

For parts that serve HTTPS themselves. Answers are remembered for ten seconds. Source: API docs
"Authentication delegation"; authentication.k8s.io/v1, authorization.k8s.io/v1.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import msgspec

from moorage.api.clock import Clock
from moorage.wire.client.rest import Client

_TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_REMEMBERED_S = 10.0
_MOST_REMEMBERED = 256
# Callers that are not known yet may not take all exchanges of the part's client.
_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class Caller:
    """The user of a request."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""


class DelegatedAccess:
    """Asks the API server about tokens and permissions."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._answers: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()

    async def user_of_token(self, token: str) -> Caller | None:
        """Return the user of a bearer token, None for one that is not valid.

        Raises StatusError and UnreachableError.
        """
        # The token itself is not kept.
        key = ("token", hashlib.sha256(token.encode()).digest())
        remembered = self._remembered(key)
        if remembered is not None:
            return remembered[0]  # type: ignore[no-any-return]
        status = await self._review(_TOKEN_REVIEWS, {"token": token})
        user = status.get("user", {})
        caller = None
        if status.get("authenticated") and user.get("username"):
            caller = Caller(user["username"], tuple(user.get("groups", ())), user.get("uid", ""))
        self._remember(key, caller)
        return caller

    async def may_get(self, caller: Caller, path: str) -> bool:
        """Return whether a user may `get` a path outside the resources.

        Raises StatusError and UnreachableError.
        """
        key = ("path", caller, path)
        remembered = self._remembered(key)
        if remembered is not None:
            return bool(remembered[0])
        spec = {
            "user": caller.name,
            "groups": list(caller.groups),
            "uid": caller.uid,
            "nonResourceAttributes": {"verb": "get", "path": path},
        }
        status = await self._review(_ACCESS_REVIEWS, spec)
        is_allowed = status.get("allowed") is True
        self._remember(key, is_allowed)
        return is_allowed

    async def _review(self, path: str, spec: dict[str, Any]) -> dict[str, Any]:
        body = msgspec.json.encode({"spec": spec})
        async with self._slots:
            answer = await self._client.request("POST", path, body=body)
        status: dict[str, Any] = msgspec.json.decode(answer).get("status", {})
        return status

    def _remembered(self, key: Hashable) -> tuple[Any] | None:
        found = self._answers.get(key)
        if found is None or self._clock.monotonic() - found[0] > _REMEMBERED_S:
            return None
        return (found[1],)

    def _remember(self, key: Hashable, answer: Any) -> None:
        self._answers[key] = (self._clock.monotonic(), answer)
        self._answers.move_to_end(key)
        while len(self._answers) > _MOST_REMEMBERED:
            self._answers.popitem(last=False)
