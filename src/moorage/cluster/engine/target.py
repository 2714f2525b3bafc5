"""Target of an installation: an engine by its endpoint, and the connection to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

import msgspec

from moorage.cluster.engine.paths import engine_paths
from moorage.cluster.layout import Layout
from moorage.cluster.settings import Settings
from moorage.runtimes.installing.downloads import Proof, RuntimeInstallationError
from moorage.runtimes.installing.engine import OwnEngine
from moorage.runtimes.installing.installation import Installer
from moorage.runtimes.installing.other_engine import OtherEngine
from moorage.runtimes.probing.carrier import ProbeCarrier
from moorage.runtimes.probing.cri_carrier import CriCarrier
from moorage.wire.cri import CriClient

_OWNER = "moor-runtime"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """An engine by its endpoint; `handlers` is the directory of our own engine's handler files."""

    endpoint: str
    layout: Layout
    handlers: Path | None = None


def node_target(layout: Layout, settings: Settings) -> Target:
    """Return the engine of a cluster's node."""
    if settings.cri:
        return Target(endpoint=settings.cri, layout=layout)
    paths = engine_paths(layout, settings)
    return Target(endpoint=paths.endpoint, layout=layout, handlers=paths.data / "handlers.d")


@asynccontextmanager
async def installer_of(
    target: Target,
    *,
    restart_command: Sequence[str],
    report: Callable[[str], None],
    carrier: ProbeCarrier | None = None,
) -> AsyncIterator[Installer]:
    """Connect to an engine, with the image that proves handlers, and yield its installer.

    A change that was interrupted is undone first. `carrier` proves handlers, and has an image for
    that; without one the engine itself does, which a kubelet on the same engine may disturb.

    Raises RuntimeInstallationError.
    """
    store = target.layout.runtimes
    async with CriClient(target.endpoint) as cri:
        proof = Proof(carrier or CriCarrier(cri, owner=_OWNER, state=store / ".proof"))
        if target.handlers is not None:
            own = OwnEngine(cri, target.handlers, proof)
            installer = Installer(own, store, target.handlers, report)
            await installer.recover()
            yield installer
            return
        engine = OtherEngine(cri, proof, shared=target.layout.root, restart_command=restart_command)
        with closing(engine):
            # The directory names files in errors only: another engine has its own.
            installer = Installer(engine, store, store, report)
            await installer.recover()
            if carrier is None:
                # Agents in pods have an image.
                from moorage.cluster.images.external import ImageUnavailableError, bring_image

                try:
                    await bring_image(cri, target.layout)
                except ImageUnavailableError as error:
                    raise RuntimeInstallationError(str(error)) from error
            yield installer
