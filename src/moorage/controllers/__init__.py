"""Controllers: loops that move a cluster from its actual to its desired state.

    async with Client(config, user_agent="moorage-controllers") as client:
        await run_controllers(client, ControllerOptions(cluster_ca=pem), SystemClock())

Each is a set of pure decisions and a thin loop that reads shared informers and writes through the
client; none knows another.
"""

from moorage.controllers.options import ControllerOptions
from moorage.controllers.overhead_drift import OverheadMetrics
from moorage.controllers.run import run_alone, run_controllers, run_runtimes
from moorage.controllers.webhookcertificates import WebhookService

__all__ = [
    "ControllerOptions",
    "OverheadMetrics",
    "WebhookService",
    "run_alone",
    "run_controllers",
    "run_runtimes",
]
