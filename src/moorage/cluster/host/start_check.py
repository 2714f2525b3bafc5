"""Host check before a start: missing packages, then whether pods can run here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from moorage.cluster.errors import CannotRunPodsError
from moorage.cluster.host import Inventory, gather
from moorage.cluster.host.findings import State, can_run_pods, examine
from moorage.cluster.host.packages import install_packages, missing_packages
from moorage.cluster.layout import Layout
from moorage.engine.handlers import Handler, discover

Inspect = Callable[..., Awaitable[tuple[Inventory, tuple[Handler, ...]]]]


async def inspect_machine(
    layout: Layout,
    *,
    is_installing: bool = False,
    report: Callable[[str], None] | None = None,
    gather: Callable[[Path], Awaitable[Inventory]] = gather,
    install: Callable[[Iterable[str], Inventory], Awaitable[object]] = install_packages,
    discover: Callable[..., Awaitable[tuple[Handler, ...]]] = discover,
) -> tuple[Inventory, tuple[Handler, ...]]:
    """Return the host's facts and its handlers; install missing packages first if `is_installing`.

    `report` receives a sentence before an installation. Raises InstallError if packages cannot be
    installed.
    """
    host = await gather(layout.root)
    missing = missing_packages(host) if is_installing else ()
    if missing:
        if report is not None:
            report(f"installing {' '.join(missing)}")
        await install(missing, host)
        host = await gather(layout.root)
    return host, await discover(host.machine, path=host.path)


async def require_machine(
    layout: Layout,
    *,
    is_installing: bool = False,
    report: Callable[[str], None] | None = None,
    inspect: Inspect = inspect_machine,
) -> tuple[Handler, ...]:
    """Return the host's handlers, after an installation as in `inspect_machine`.

    Raises CannotRunPodsError if something that pods need is missing.
    """
    host, handlers = await inspect(layout, is_installing=is_installing, report=report)
    findings = examine(host, handlers)
    if not can_run_pods(findings):
        problems = "".join(
            f"\n  {finding.subject}: {finding.meaning}"
            + (f" → {finding.remedy}" if finding.remedy else "")
            for finding in findings
            if finding.state is State.PROBLEM
        )
        raise CannotRunPodsError(
            f"this machine cannot run pods:{problems}\n"
            "`moor up --install` installs missing packages on Debian; "
            "`moor up --no-node` starts the control plane alone, which needs nothing of this"
        )
    return handlers
