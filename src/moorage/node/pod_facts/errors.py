"""Errors of a pod's lifecycle: what blocks its start, and what its teardown has left."""

from __future__ import annotations

from moorage.api.text import valid_text


class SyncError(Exception):
    """A pod or one of its containers cannot start.

    `reason` and `message` are those of the status: of the container that is being started, else of
    all containers of the pod. The event is recorded where the failure is known, or by the pod
    action. `retry_s` is the earliest time for another try, in monotonic seconds; None leaves it to
    the operation's backoff. Source: kubelet `SyncResult`.
    """

    def __init__(self, reason: str, message: str, *, retry_s: float | None = None) -> None:
        # It may quote a name that a pod's program chose.
        self.message = valid_text(message)
        super().__init__(self.message)
        self.reason = reason
        self.retry_s = retry_s


class TeardownError(Exception):
    """Something of a pod could not be stopped or removed; it is logged and retried."""
