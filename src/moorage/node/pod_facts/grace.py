"""Grace period of a pod's termination. Source: core/v1 `terminationGracePeriodSeconds`."""

from __future__ import annotations

from moorage.api.pods import Pod

MINIMUM_GRACE_S = 2
"""Grace period of a container or pod that is stopped at once, in seconds."""

EVICTION_GRACE_S = 1
"""Grace period of a pod that is evicted at once. Source: kubelet `eviction_manager.go`."""

_DEFAULT_GRACE_S = 30


def grace_period_s(pod: Pod) -> int:
    """Return the grace period in seconds: that of the deletion, else that of the spec."""
    if pod.metadata.deletion_grace_period_seconds is not None:
        return pod.metadata.deletion_grace_period_seconds
    grace = pod.spec.termination_grace_period_seconds
    return _DEFAULT_GRACE_S if grace is None else grace
