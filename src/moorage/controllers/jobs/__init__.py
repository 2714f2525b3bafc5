"""Job controllers: the pods and the status of Jobs, and the deletion of finished Jobs."""

from moorage.controllers.jobs.controller import JobController
from moorage.controllers.jobs.ttl import orphan_release, ttl_after_finished

__all__ = ["JobController", "orphan_release", "ttl_after_finished"]
