"""RuntimeClasses for the handlers that nodes were found to have."""

from moorage.controllers.runtimeclasses.controller import RuntimeClassController

__all__ = ["RuntimeClassController"]
