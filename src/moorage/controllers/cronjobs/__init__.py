"""CronJob controller: Jobs at scheduled times."""

from moorage.controllers.cronjobs.controller import CronJobController

__all__ = ["CronJobController"]
