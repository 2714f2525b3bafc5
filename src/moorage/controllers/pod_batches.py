"""Batches of pod requests that lower the owner's expectations by the requests that fail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from moorage.api.errors import NotFoundError, StatusError
from moorage.controllers.batches import at_once, slow_start
from moorage.controllers.expectations import Expectations
from moorage.controllers.objects import Pod
from moorage.controllers.refusals import is_namespace_ending
from moorage.wire.client.rest import UnreachableError

Failure = StatusError | UnreachableError


class PodBatches:
    """Creates and deletes pods of the owners of one controller, which are expected beforehand."""

    def __init__(self, expectations: Expectations) -> None:
        self._expectations = expectations

    async def create(
        self, key: str, calls: Sequence[Callable[[], Awaitable[None]]]
    ) -> tuple[int, Failure | None]:
        """Create a pod by each call, in growing batches until one fails.

        Returns how many were created and the first failure. That nothing can be created in a
        namespace that is terminating is no failure.
        """
        waiting = iter(calls)
        created = 0

        async def create() -> None:
            nonlocal created
            try:
                await next(waiting)()
                created += 1
            except (StatusError, UnreachableError) as error:
                self._expectations.creation_seen(key)
                if not is_namespace_ending(error):
                    raise

        called, failure = await slow_start(len(calls), create)
        self._expectations.creation_seen(key, len(calls) - called)
        return created, failure

    async def delete(
        self, key: str, pods: Sequence[Pod], call: Callable[[Pod], Awaitable[None]]
    ) -> tuple[list[Pod], Failure | None]:
        """Delete pods by `call`, all at once.

        Returns those that are gone or going, and the first failure.
        """
        going: list[Pod] = []

        async def delete(pod: Pod) -> None:
            try:
                await call(pod)
            except NotFoundError:
                self._expectations.deletion_seen(key, pod.metadata.uid)
            except (StatusError, UnreachableError):
                self._expectations.deletion_seen(key, pod.metadata.uid)
                raise
            going.append(pod)

        failure = await at_once([partial(delete, pod) for pod in pods])
        return going, failure
