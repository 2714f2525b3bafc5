"""Replacing of containers whose definition changed: what the status says meanwhile.

The kubelet stops such a container and starts its successor in one step, and reports the pod before
and after it. So does this agent, unless the successor takes long: clients that change an image do
not see the pod unready for a moment. Source: kubelet `SyncPod`, PLEG relist period.
"""

from __future__ import annotations

from moorage.api.clock import Clock
from moorage.node.runtime.views import ContainerView, PodView, State

MOST_S = 1.0
"""How long the end of a container is not reported: upstream looks for it once a second."""


class Replacements:
    """The containers of one pod that are stopped for a successor."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stopped: dict[str, tuple[str, float | None]] = {}
        """Name → ID of the container, and when its end was seen first."""

    def begin(self, container: ContainerView) -> None:
        """Note that a container is stopped because its definition changed."""
        self._stopped[container.name] = (container.id, None)

    def left_s(self, view: PodView) -> float:
        """Return for how many seconds more the status stays as it is, 0 to report it now."""
        now_s = self._clock.monotonic()
        left_s = 0.0
        for name, (id_, ended_s) in list(self._stopped.items()):
            latest = view.latest(name)
            if latest is None or (latest.id != id_ and latest.state is not State.CREATED):
                del self._stopped[name]
            elif latest.id != id_ or latest.state is State.EXITED:
                ended_s = now_s if ended_s is None else ended_s
                self._stopped[name] = (id_, ended_s)
                left_s = max(left_s, ended_s + MOST_S - now_s)
        return left_s
