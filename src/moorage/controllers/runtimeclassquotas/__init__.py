"""RuntimeClassQuotas: what pods use of them, counted again."""

from moorage.controllers.runtimeclassquotas.controller import RuntimeClassQuotaController

__all__ = ["RuntimeClassQuotaController"]
