"""Job controllers: the pods and the status of Jobs, and the deletion of finished Jobs."""

from moorage.controllers.jobs.controller import JobController
from moorage.controllers.jobs.orphans import OrphanController
from moorage.controllers.jobs.ttl import TtlAfterFinishedController

__all__ = ["JobController", "OrphanController", "TtlAfterFinishedController"]
