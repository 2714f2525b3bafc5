"""RuntimeClasses for the handlers that nodes were found to have."""

from moorage.controllers.runtimeclasses.controller import RuntimeClassController
from moorage.controllers.runtimeclasses.creation import create_classes

__all__ = ["RuntimeClassController", "create_classes"]
