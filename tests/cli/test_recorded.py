"""Every option of every command, against a recorded table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from moorage.cli.main import cli
from tests.recording import assert_recorded


def _commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            for subcommand, below in command.commands.items():
                yield f"{name} {subcommand}", below


def _plain(parameter: click.Parameter) -> dict[str, Any]:
    """What a parameter declares; places of the user's are those of any user."""
    info = parameter.to_info_dict()
    if callable(parameter.default):
        info["default"] = parameter.default.__name__
    for name in ("metavar", "show_default", "is_eager", "is_bool_flag"):
        info[name] = getattr(parameter, name, None)
    completion = parameter._custom_shell_complete
    info["completion"] = completion.__name__ if completion is not None else None
    fields = {key: value for key, value in info.items() if value is not None and key != "help"}
    text = json.dumps(fields, sort_keys=True, default=str)
    plain: dict[str, Any] = json.loads(text.replace(str(Path.home()), "HOME"))
    return plain


def test_the_options_of_every_command() -> None:
    table = {
        f"{name} {parameter.name}": _plain(parameter)
        for name, command in _commands()
        for parameter in command.params
    }
    assert_recorded("cli/options", table)
