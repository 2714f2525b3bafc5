"""Which failures are told in one line, and the exit status of each."""

from __future__ import annotations

from moorage.api.errors import StatusError

FAILED = 1
NOT_RUNNING = 3
CANNOT_RUN_PODS = 4


class CliError(Exception):
    """A failure to tell people, with the exit status it ends in."""

    exit_status = FAILED


class NotRunningError(CliError):
    """The cluster is down, and the command needs it."""

    exit_status = NOT_RUNNING


class CannotRunPodsError(CliError):
    """This machine lacks something that pods need."""

    exit_status = CANNOT_RUN_PODS


def is_expected(error: Exception) -> bool:
    """Whether a failure says itself what people can do, and needs no traceback."""
    # Imported only now: most of these come with parts that a command that works may not need.
    from moorage.client.config import ConfigError
    from moorage.cluster.settings import SettingsError
    from moorage.handlers.command import CommandError

    kinds = (CliError, CommandError, ConfigError, OSError, SettingsError, StatusError)
    return isinstance(error, kinds)


def sentence_of(error: Exception) -> str:
    """Return the sentence that reports an expected failure; an OSError's names its file."""
    if type(error).__module__ == "builtins" and isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)
