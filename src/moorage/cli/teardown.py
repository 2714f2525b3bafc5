"""Teardown of a cluster, as `moor down` and `moor demo` need it."""

from __future__ import annotations

import asyncio

from moorage.api.logs import configure
from moorage.cli.errors import CliError
from moorage.cluster.engine import LeftoverError
from moorage.cluster.files import exclusive
from moorage.cluster.layout import Layout
from moorage.cluster.settings import Settings
from moorage.cluster.teardown import StopError, clear_machine, stop_parts
from moorage.handlers.command import CommandError


def take_down(
    layout: Layout, settings: Settings, *, keep_pods: bool = False, abandons_pods: bool = False
) -> bool:
    """Stop parts and, unless kept, pods; whether anything ran. Raises CliError."""
    # Pods are ended by an engine in this process, which says in its log what it cannot do.
    configure("warning")
    try:
        with exclusive(layout.change_lock):
            was_running = stop_parts(layout)
            if not keep_pods:
                asyncio.run(clear_machine(layout, settings, abandons_pods=abandons_pods))
    except (StopError, LeftoverError, CommandError) as error:
        raise CliError(str(error)) from error
    return was_running
