"""Installing what a node lacks, when that was asked for."""

from __future__ import annotations

import click

from moorage.cli.errors import CannotRunPodsError
from moorage.cluster.host import Host, gather
from moorage.cluster.layout import Layout
from moorage.cluster.packages import InstallError, install_packages, missing_packages


async def with_packages(layout: Layout, *, is_installing: bool, is_quiet: bool = False) -> Host:
    """The host's facts, after its missing packages were installed if that was asked for.

    Raises CannotRunPodsError where packages cannot be installed.
    """
    host = await gather(layout.root)
    missing = missing_packages(host) if is_installing else ()
    if not missing:
        return host
    if not is_quiet:
        click.echo(f"installing {' '.join(missing)}", err=True)
    try:
        await install_packages(missing, host)
    except InstallError as error:
        raise CannotRunPodsError(str(error)) from error
    return await gather(layout.root)
