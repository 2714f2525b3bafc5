"""Errors of a cluster that a user can act on: one base class, one sentence each.

ClusterError
├── SettingsError ........ choices that contradict each other, or the existing cluster
├── AlreadyRunningError .. another supervisor holds the directory
├── NotRunningError ...... there is no cluster in the directory, or it is down
├── CannotRunPodsError ... the host lacks something that pods need
├── StartError ........... the cluster ended, or was not ready in time
├── StopError ............ the supervisor did not end
└── LeftoverError ........ something could not be removed from the host
"""

from __future__ import annotations

from moorage.api.errors import OperationError


class ClusterError(OperationError):
    """An operation on a cluster failed."""


class NotRunningError(ClusterError):
    """There is no cluster in the directory, or it is down."""


class CannotRunPodsError(ClusterError):
    """The host lacks something that pods need; the text lists it with remedies."""


class StartError(ClusterError):
    """The cluster did not start; the text has the end of its supervisor's log.

    `has_ended`: the supervisor has ended. Otherwise it was not ready in time and keeps running.
    """

    def __init__(self, text: str, *, has_ended: bool = True) -> None:
        super().__init__(text)
        self.has_ended = has_ended


class StopError(ClusterError):
    """The supervisor did not end in time."""


class LeftoverError(ClusterError):
    """Something could not be removed from the host; the text says what holds it."""
