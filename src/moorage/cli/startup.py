"""Startup of a cluster, for `moor up` and `moor demo`: the machine prepared, settings opened."""

from __future__ import annotations

from moorage.cli.errors import CannotRunPodsError, CliError
from moorage.cli.machine import look
from moorage.cluster.claims import Claims
from moorage.cluster.creation import Choices, open_cluster
from moorage.cluster.doctor import State, can_run_pods, examine
from moorage.cluster.layout import Layout
from moorage.cluster.network import NoSubnetError, SubnetTakenError
from moorage.cluster.settings import Settings, SettingsError
from moorage.cluster.supervisor import AlreadyRunningError
from moorage.handlers import Handler


async def prepare_machine(layout: Layout, *, is_installing: bool) -> tuple[Handler, ...]:
    """Install what is missing if that was asked for; the machine's handlers.

    Raises CannotRunPodsError when something that pods need is still missing.
    """
    host, handlers = await look(layout, is_installing=is_installing)
    findings = examine(host, handlers)
    if not can_run_pods(findings):
        problems = "".join(
            f"\n  {each.subject}: {each.meaning}" + (f" → {each.remedy}" if each.remedy else "")
            for each in findings
            if each.state is State.PROBLEM
        )
        raise CannotRunPodsError(
            f"this machine cannot run pods:{problems}\n"
            "`moor up --install` installs missing packages on Debian; "
            "`moor up --no-node` starts the control plane alone, which needs nothing of this"
        )
    return handlers


def opened(layout: Layout, choices: Choices, claims: Claims) -> Settings:
    """The settings of the cluster, made if absent. Raises CliError."""
    try:
        return open_cluster(layout, choices, claims)
    except (SettingsError, NoSubnetError, SubnetTakenError, AlreadyRunningError) as error:
        raise CliError(str(error)) from error
    except OSError as error:
        raise CliError(
            f"{layout.root} cannot be used for a cluster: {error.strerror}; choose another "
            "directory with --data-dir"
        ) from error
