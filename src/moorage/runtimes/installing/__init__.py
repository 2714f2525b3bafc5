"""Runtimes that `moor runtime` installs into a node's engine, ours or another's.

source ──check──▶ store/NAME/VERSION ──▶ handler file or configuration ──engine──▶ proof ─▶ done
"""

from moorage.runtimes.installing.downloads import Proof, RuntimeInstallationError
from moorage.runtimes.installing.engine import OwnEngine
from moorage.runtimes.installing.installation import Installer
from moorage.runtimes.installing.other_engine import OtherEngine
from moorage.runtimes.installing.plan import Request, Source, plan_installation

__all__ = [
    "Installer",
    "OtherEngine",
    "OwnEngine",
    "Proof",
    "Request",
    "RuntimeInstallationError",
    "Source",
    "plan_installation",
]
