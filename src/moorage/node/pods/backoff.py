"""Restart backoff of containers.

Delays double from 10 s to 5 min, counted from the end of the last run, and reset once a run has
lasted 10 min. They are restored from the containers' own records, so a restart of the agent does
not start a crashing container at once. Source: kubelet `doBackOff`.
"""

from __future__ import annotations

from dataclasses import dataclass

from moorage.node.runtime.views import ContainerView

FIRST_S = 10.0
LIMIT_S = 300.0
FORGET_S = 2 * LIMIT_S

_NANO = 1_000_000_000


@dataclass(slots=True)
class _Pause:
    seconds: float
    restarted_s: float


class RestartBackoff:
    """Restart delays of one pod's containers. Times are seconds since the epoch."""

    def __init__(self) -> None:
        self._pauses: dict[tuple[str, int | None], _Pause] = {}

    def pause_s(self, ended: ContainerView) -> float:
        """Return the whole delay before the container's successor may start; 0 for no delay."""
        pause = self._known(ended)
        if pause is None or self._is_forgotten(pause, ended):
            return 0.0
        return pause.seconds

    def ready_s(self, ended: ContainerView) -> float:
        """Return the time from which the successor may start."""
        return ended.finished_ns / _NANO + self.pause_s(ended)

    def restarted(self, ended: ContainerView, now_s: float) -> None:
        """Record that the successor of `ended` is being started now."""
        pause = self._known(ended)
        if pause is None or self._is_forgotten(pause, ended):
            seconds = FIRST_S
        else:
            seconds = min(pause.seconds * 2, LIMIT_S)
        self._pauses[_key(ended)] = _Pause(seconds, now_s)

    def _known(self, ended: ContainerView) -> _Pause | None:
        pause = self._pauses.get(_key(ended))
        if pause is None and ended.restart_count > 0:
            doublings = min(ended.restart_count - 1, 30)
            seconds = min(FIRST_S * 2**doublings, LIMIT_S)
            pause = self._pauses[_key(ended)] = _Pause(seconds, ended.created_ns / _NANO)
        return pause

    @staticmethod
    def _is_forgotten(pause: _Pause, ended: ContainerView) -> bool:
        return ended.finished_ns / _NANO - pause.restarted_s > FORGET_S


def _key(container: ContainerView) -> tuple[str, int | None]:
    # A changed container definition (its image) has not failed yet.
    return container.name, container.memory.hash
