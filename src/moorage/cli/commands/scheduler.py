"""Command `moor scheduler`: runs the scheduler without a cluster of ours."""

from __future__ import annotations

from functools import partial

import click

from moorage.attach.processes import scheduler
from moorage.cli.daemon import log_level_option, run_until_stopped, server_options
from moorage.scheduler import DEFAULT_SCHEDULER, SchedulerOptions
from moorage.wire.client.config import ClientConfig


@click.command("scheduler")
@server_options
@click.option(
    "--name",
    default=DEFAULT_SCHEDULER,
    show_default=True,
    help="`spec.schedulerName` of the pods to place.",
)
@click.option(
    "--schedule-by-handler/--scheduler-like-upstream",
    "by_handler",
    default=True,
    help="Keep pods off nodes that lack their handler, or let them fail there as Kubernetes does.",
)
@log_level_option
def command(*, config: ClientConfig, name: str, by_handler: bool, log_level: str) -> None:
    """Run the scheduler alone, in the foreground, for any Kubernetes API server.

    Stop kube-scheduler first, or give another --name: two that place the same pods disturb each
    other.
    """
    options = SchedulerOptions(name=name, filters_by_handler=by_handler)
    run_until_stopped(partial(scheduler.run, config, options), log_level)
