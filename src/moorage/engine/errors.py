"""The engine's errors, each with what a caller of the CRI is told.

EngineError
├── NotFoundError            NOT_FOUND
├── InvalidError             INVALID_ARGUMENT        the request can never work
├── PreconditionError        FAILED_PRECONDITION     not in this state, or a name is taken
├── UnsupportedCallError     UNIMPLEMENTED
├── TimeLimitError           DEADLINE_EXCEEDED
├── ExhaustedError           RESOURCE_EXHAUSTED      no room: disk, addresses, streams
└── FailedError              UNKNOWN                 a runtime, a plugin or the machine failed

The text is one line and goes to users in events, so it says which object and what to do.
Source: the codes containerd and CRI-O answer with, which kubelets and critest rely on.
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
    """No such sandbox, container or image."""

    code = grpc.StatusCode.NOT_FOUND


class InvalidError(EngineError):
    """A request that can never work as it is."""

    code = grpc.StatusCode.INVALID_ARGUMENT


class PreconditionError(EngineError):
    """Not in this state, or the name is taken."""

    code = grpc.StatusCode.FAILED_PRECONDITION


class UnsupportedCallError(EngineError):
    """The engine, or the handler, cannot do that."""

    code = grpc.StatusCode.UNIMPLEMENTED


class TimeLimitError(EngineError):
    """A command or program took longer than it was given."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED


class ExhaustedError(EngineError):
    """No room left: disk, addresses, outstanding streams."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class FailedError(EngineError):
    """A runtime, a network plugin or the machine failed; the text has its words."""
