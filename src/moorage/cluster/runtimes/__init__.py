"""Runtimes that `moor runtime` installs into a cluster's own engine, with their handler files.

source ──check──▶ store/NAME/VERSION ──▶ handlers.d/NAME.toml ──engine──▶ proof ─▶ done, or undone
"""

from moorage.cluster.runtimes.errors import RuntimeInstallationError
from moorage.cluster.runtimes.installation import Installer
from moorage.cluster.runtimes.plan import Request, Source, plan_installation

__all__ = [
    "Installer",
    "Request",
    "RuntimeInstallationError",
    "Source",
    "plan_installation",
]
