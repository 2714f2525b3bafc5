"""Controller of RuntimeInstallations: lets nodes change in waves, and sums up what they say."""

from moorage.controllers.runtimeinstallations.controller import RuntimeInstallationController

__all__ = ["RuntimeInstallationController"]
