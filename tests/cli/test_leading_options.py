"""Options of a connection before the command: where they come to stand."""

from __future__ import annotations

import click
import pytest

from moorage.cli.main import behind_command, cli
from tests.cli.moor import moor


def moved(text: str) -> str:
    return " ".join(behind_command(cli, click.Context(cli), text.split()))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("explain pod/a", "explain pod/a"),
        ("-n web explain pod/a", "explain -n web pod/a"),
        ("-nweb explain pod/a", "explain -nweb pod/a"),
        ("--namespace=web explain pod/a -o json", "explain --namespace=web pod/a -o json"),
        ("--context c runtimes", "runtimes --context c"),
        ("--context c runtimes features --evidence", "runtimes features --context c --evidence"),
        ("--context c -n n rollout status r", "rollout status --context c -n n r"),
        ("--context c runtimes -o json", "runtimes --context c -o json"),
        ("--context c fly", "fly --context c"),
        ("--help", "--help"),
        ("--version", "--version"),
        ("", ""),
    ],
)  # fmt: skip
def test_options_before_the_command_are_its_own(given: str, expected: str) -> None:
    assert moved(given) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("--context", "Option '--context' requires an argument."),
        ("-n web", "-n needs a command behind it"),
    ],
)
def test_an_option_without_value_or_command_is_a_usage_error(given: str, message: str) -> None:
    answer = moor(*given.split())
    assert (answer.status, message in answer.err) == (2, True), answer.err


def test_a_command_that_does_not_take_the_option_says_so() -> None:
    answer = moor("-n", "web", "doctor")
    assert answer.status == 2
    assert "No such option: -n" in answer.err or "No such option '-n'" in answer.err


def test_an_unknown_command_is_named() -> None:
    answer = moor("--context", "c", "fly")
    assert answer.status == 2
    assert "No such command 'fly'" in answer.err
