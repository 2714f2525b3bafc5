"""Runtime adapters: the `Adapter` protocol, and an implementation for each kind of runtime."""

from moorage.engine.handlers.adapters.adapter import (
    STDERR,
    STDOUT,
    Adapter,
    AdapterError,
    ExecProcess,
    Exit,
    Streams,
    Task,
    TaskNotFoundError,
    TaskUsage,
    UnsupportedError,
)

__all__ = [
    "STDERR",
    "STDOUT",
    "Adapter",
    "AdapterError",
    "ExecProcess",
    "Exit",
    "Streams",
    "Task",
    "TaskNotFoundError",
    "TaskUsage",
    "UnsupportedError",
]
