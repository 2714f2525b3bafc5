"""What this machine is and which handlers it has, as several commands ask."""

from __future__ import annotations

import click

from moorage.cli.errors import CannotRunPodsError
from moorage.cluster.host import Host, gather
from moorage.cluster.layout import Layout
from moorage.cluster.packages import InstallError, install_packages, missing_packages
from moorage.handlers import Handler, discover


async def look(layout: Layout, *, is_installing: bool = False) -> tuple[Host, tuple[Handler, ...]]:
    """The host and its handlers, after its missing packages were installed if that was asked for.

    Raises CannotRunPodsError where packages cannot be installed.
    """
    host = await gather(layout.root)
    missing = missing_packages(host) if is_installing else ()
    if missing:
        click.echo(f"installing {' '.join(missing)}", err=True)
        try:
            await install_packages(missing, host)
        except InstallError as error:
            raise CannotRunPodsError(str(error)) from error
        host = await gather(layout.root)
    return host, await discover(None, host.machine, path=host.path)
