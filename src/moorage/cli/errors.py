"""Failures that are reported in one line, and the exit status of each."""

from __future__ import annotations

from moorage.api.errors import OperationError, StatusError
from moorage.cluster.errors import CannotRunPodsError, NotRunningError

FAILED = 1
NOT_RUNNING = 3
CANNOT_RUN_PODS = 4


class CliError(Exception):
    """A command failed; the text is what is printed."""


def is_expected(error: Exception) -> bool:
    """Return whether an error's text suffices for the user, so that it needs no traceback."""
    # Imported here: a command that succeeds needs none of these modules.
    from moorage.linux.command import CommandError
    from moorage.wire.client.config import ConfigError

    kinds = (CliError, OperationError, CommandError, ConfigError, OSError, StatusError)
    return isinstance(error, kinds)


def exit_status_of(error: Exception) -> int:
    """Return the exit status of a command that failed with this error."""
    if isinstance(error, NotRunningError):
        return NOT_RUNNING
    return CANNOT_RUN_PODS if isinstance(error, CannotRunPodsError) else FAILED


def sentence_of(error: Exception) -> str:
    """Return the message for an expected failure; an OSError's names its file."""
    if isinstance(error, NotRunningError):
        return f"{error}; --data-dir or MOORAGE_DATA_DIR choose another directory"
    if type(error).__module__ == "builtins" and isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)
