"""Engine errors and their gRPC codes.

    EngineError
    ├── NotFoundError            NOT_FOUND
    ├── InvalidError             INVALID_ARGUMENT        the request can never work
    ├── PreconditionError        FAILED_PRECONDITION     not in this state, or a name is taken
    ├── UnsupportedCallError     UNIMPLEMENTED
    ├── TimeLimitError           DEADLINE_EXCEEDED
    ├── ExhaustedError           RESOURCE_EXHAUSTED      no room: disk, addresses, streams
    └── FailedError              UNKNOWN                 a runtime, a plugin or the host failed

The text is one line and reaches users in events: it names the object and the remedy. Source: the
codes of containerd and CRI-O, which kubelets and critest rely on.
"""

from __future__ import annotations

from typing import ClassVar

import grpc


class EngineError(Exception):
    """The root; `code` is the gRPC status."""

    code: ClassVar[grpc.StatusCode] = grpc.StatusCode.UNKNOWN

    @property
    def sentence(self) -> str:
        """The text on one line."""
        return " ".join(str(self).split())


class NotFoundError(EngineError):
    """A sandbox, container or image does not exist."""

    code = grpc.StatusCode.NOT_FOUND


class InvalidError(EngineError):
    """A request can never work as it is."""

    code = grpc.StatusCode.INVALID_ARGUMENT


class PreconditionError(EngineError):
    """The object is not in the required state, or the name is taken."""

    code = grpc.StatusCode.FAILED_PRECONDITION


class UnsupportedCallError(EngineError):
    """The engine or the handler does not support a call."""

    code = grpc.StatusCode.UNIMPLEMENTED


class TimeLimitError(EngineError):
    """A command or program exceeded its time limit."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED


class ExhaustedError(EngineError):
    """No room is left: disk, addresses, pending streams."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class FailedError(EngineError):
    """A runtime, a network plugin or the host failed; the text has its message."""
