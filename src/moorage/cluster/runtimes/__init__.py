"""Runtimes that `moor runtime` installs into a node's engine, ours or another's.

source ──check──▶ store/NAME/VERSION ──▶ handler file or configuration ──engine──▶ proof ─▶ done
"""

from moorage.cluster.runtimes.errors import RuntimeInstallationError
from moorage.cluster.runtimes.installation import Installer
from moorage.cluster.runtimes.other_engine import OtherEngine
from moorage.cluster.runtimes.own_engine import OwnEngine
from moorage.cluster.runtimes.plan import Request, Source, plan_installation
from moorage.cluster.runtimes.proof import Proof

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
