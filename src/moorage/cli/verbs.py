"""Verbs: groups of commands that suggest one for an unknown word."""

from __future__ import annotations

import difflib

import click

_ALIKE = 0.6


class VerbGroup(click.Group):
    """A group that names the command which a mistyped word is most like."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of the first argument. Raises UsageError, with a suggestion."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            alike = difflib.get_close_matches(args[0], self.list_commands(ctx), 1, _ALIKE)
            if not alike or args[0].startswith("-"):
                raise
            sentence = f"No such command {args[0]!r}. Did you mean {alike[0]!r}?"
            raise click.UsageError(sentence, ctx) from error
