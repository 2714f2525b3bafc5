"""Command group `moor`: each command's module is imported when it is used."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from moorage import __version__
from moorage.api.text import printable
from moorage.cli.errors import exit_status_of, is_expected, sentence_of
from moorage.cli.factory import Factory
from moorage.cli.verbs import VerbGroup
from moorage.cluster.importing import import_program

# name → (module, one line of help); the order is that of the help.
_COMMANDS = {
    "up": ("up", "Start the cluster, or resume the one in the data directory."),
    "down": ("down", "Stop the cluster and its pods; the data stays."),
    "status": ("status", "Show the status of the cluster's parts."),
    "logs": ("logs", "Show the log of one part, or of all parts."),
    "kubeconfig": ("kubeconfig", "Print the kubeconfig's path, or merge it into yours."),
    "explain": ("explain", "Explain why a pod or a workload is as it is, or does not run."),
    "run": ("run", "Run one command under several classes, and compare results."),
    "top": ("top", "Watch pods, starts, overhead and failures of each class."),
    "ui": ("ui", "Serve the web page of runtimes on this machine."),
    "bench": ("bench", "Measure what each class costs."),
    "check": ("check", "Check manifests against classes, before they are applied."),
    "runtimes": ("runtimes", "List the runtime handlers of the engine or the machine."),
    "runtime": ("runtime", "Add, upgrade and remove runtimes of the cluster's own engine."),
    "rollout": ("rollout", "Move workloads from one RuntimeClass to another, by waves."),
    "overhead": ("overhead", "Measure what the pods of a runtime handler cost."),
    "conformance": ("conformance", "Prove by pods what a class promises."),
    "doctor": ("doctor", "Check everything on this machine that pods need."),
    "attach": ("attach", "Install Moorage on a Kubernetes that is there already."),
    "detach": ("detach", "Remove from a Kubernetes what `moor attach` installed."),
    "migrate": ("migrate", "Migrate files or a cluster to classes, handlers, policies."),
    "image": ("image", "List, load, import and remove images of the cluster's engine."),
    "engine": ("engine", "Run the container engine alone, for any kubelet."),
    "scheduler": ("scheduler", "Run the scheduler alone, for any API server."),
    "controllers": ("controllers", "Run the controllers alone, for any API server."),
    "webhook": ("webhook", "Run the admission webhook alone, for any API server."),
    "node": ("node", "Run the node agent alone, for any API server."),
    "runtime-agent": ("runtime_agent", "Run the runtime agent beside another's kubelet."),
    "backup": ("backup", "Write a backup of the cluster, running or not, to a file."),
    "restore": ("restore", "Put a backup in the place of a stopped cluster."),
    "demo": ("demo", "Run the demo on this machine and clean up after it."),
    "completion": ("completion", "Print the completion script of a shell."),
}


class _Commands(VerbGroup):
    """A group whose commands are imported one at a time: `moor status` needs no API server."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        module = import_program(f"moorage.cli.commands.{_COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, behind_command(self, ctx, args))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="moor")
def cli() -> None:
    """Kubernetes' RuntimeClass, end to end: pods run under the runtime their class names.

    --kubeconfig, --context, --data-dir and -n may stand before the command too.

    \b
    Exit status: 0 done · 1 failed, and the reason is on standard error · 2 wrong usage ·
    3 the cluster is not running · 4 this machine cannot run pods
    """


def main(arguments: list[str] | None = None, factory: Factory | None = None) -> Any:
    """Run the command line and exit with its status; `factory` makes what commands work with.

    Prints an expected error in one line without traceback; raises any other.
    """
    try:
        return cli.main(args=arguments, prog_name="moor", standalone_mode=True, obj=factory)
    except Exception as error:
        if not is_expected(error):
            raise
        click.echo(f"moor: {printable(sentence_of(error), keep=chr(10))}", err=True)
        sys.exit(exit_status_of(error))


# Leading options: those of a connection that stand before the command, as kubectl takes them.
#
# moor -n web explain pod/a   →   moor explain -n web pod/a

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
