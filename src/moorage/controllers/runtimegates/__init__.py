"""Controller of gates: pods that wait for a node with the handler of their class."""

from moorage.controllers.runtimegates.controller import RuntimeGateController

__all__ = ["RuntimeGateController"]
