"""Errors of installing runtimes."""

from __future__ import annotations

from collections.abc import Iterable

from moorage.api.operation_error import OperationError


class RuntimeInstallationError(OperationError):
    """A runtime was not installed, upgraded or removed; what was there before is as before."""


class HandlerInUseError(RuntimeInstallationError):
    """A handler is not removed because pods run under it."""

    def __init__(self, handler: str, pods: Iterable[str]) -> None:
        names = ", ".join(sorted(pods))
        super().__init__(f"pods run under handler {handler}: {names}; delete them first")
