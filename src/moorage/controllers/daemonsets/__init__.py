"""DaemonSets: a pod of one template on each eligible node."""

from moorage.controllers.daemonsets.controller import DaemonSetController

__all__ = ["DaemonSetController"]
