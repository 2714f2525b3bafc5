"""Controller of RuntimeRollouts: observes workloads, carries out the steps of the state machine."""

from moorage.controllers.runtimerollouts.controller import RuntimeRolloutController

__all__ = ["RuntimeRolloutController"]
