"""Deployments: moving from one pod template to another, a few pods at a time."""

from moorage.controllers.deployments.controller import DeploymentController

__all__ = ["DeploymentController"]
