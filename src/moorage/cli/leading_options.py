"""Leading options: those of a connection that stand before the command, as kubectl takes them.

moor -n web explain pod/a   →   moor explain -n web pod/a
"""

from __future__ import annotations

from collections.abc import Sequence

import click

_OPTIONS = ("-n", "--namespace", "--context", "--kubeconfig", "--data-dir")
_SHORT = "-n"


def behind_command(group: click.Group, ctx: click.Context, arguments: Sequence[str]) -> list[str]:
    """Return the arguments with leading options behind the command that they are for.

    Raises UsageError for an option without its value, or without a command.
    """
    count = _leading(arguments)
    if not count:
        return list(arguments)
    options, rest = arguments[:count], arguments[count:]
    if not rest:
        raise click.UsageError(f"{options[0]} needs a command behind it", ctx)
    words = 0
    command: click.Command | None = group
    while isinstance(command, click.Group) and words < len(rest):
        command = command.get_command(ctx, rest[words])
        # A word that is no command is an argument of the last one that is.
        words += command is not None
    # Without a command, the word that is none is what is refused.
    words = words or len(rest)
    return [*rest[:words], *options, *rest[words:]]


def _leading(arguments: Sequence[str]) -> int:
    """Return how many arguments are leading options and their values."""
    count = 0
    while count < len(arguments):
        name, equals, _ = arguments[count].partition("=")
        if name in _OPTIONS and (equals or name == arguments[count]):
            if not equals and count + 1 == len(arguments):
                raise click.UsageError(f"Option {name!r} requires an argument.")
            count += 1 if equals else 2
        elif name.startswith(_SHORT) and not name.startswith("--"):
            count += 1
        else:
            break
    return count
