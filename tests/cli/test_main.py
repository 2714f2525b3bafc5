"""The help, and what is no command."""

from __future__ import annotations

import pytest

from moorage import __version__
from moorage.cli.main import cli
from tests.cli.moor import moor

COMMANDS = (
    "up", "down", "status", "logs", "kubeconfig", "explain", "run", "top", "ui", "bench", "check",
    "runtimes", "runtime", "rollout", "overhead", "conformance", "doctor", "attach", "detach",
    "migrate", "image", "engine", "scheduler", "controllers", "webhook", "node", "runtime-agent",
    "backup", "restore", "demo",
    "completion",
)  # fmt: skip


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_lists_every_command_in_order_and_the_exit_statuses(option: str) -> None:
    output = moor(option).out
    listed = output.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in listed] == list(COMMANDS)
    assert (
        listed[0] == "  up             Start the cluster, or resume the one in the data directory."
    )
    assert "3 the cluster is not running" in output
    assert cli.list_commands(None) == list(COMMANDS)  # type: ignore[arg-type]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str) -> None:
    assert moor(command, "-h").out.startswith(f"Usage: moor {command}")


def test_the_version() -> None:
    assert moor("--version").out == f"moor, version {__version__}\n"


def test_unknown_command_is_a_usage_error() -> None:
    answer = moor("fly")
    assert answer.status == 2
    assert "No such command 'fly'" in answer.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_of_that_shell(shell: str) -> None:
    output = moor("completion", shell).out
    assert "_MOOR_COMPLETE" in output
    assert f"{shell}_complete" in output
    assert "moor" in output.split()
    assert moor("completion", "csh").status == 2


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        (("statsu",), "Did you mean 'status'?"),
        (("-n", "web", "explian", "pod/a"), "Did you mean 'explain'?"),
        (("rollout", "strat"), "Did you mean 'start'?"),
        (("image", "lsit"), "Did you mean 'list'?"),
        (("runtimes", "featurs"), "Did you mean 'features'?"),
    ],
)
def test_a_mistyped_verb_is_answered_with_the_one_that_is_meant(
    words: tuple[str, ...], suggestion: str
) -> None:
    answer = moor(*words)
    assert answer.status == 2
    assert suggestion in answer.err
    assert "Did you mean" not in moor("xyzzy").err
