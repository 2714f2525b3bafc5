"""ResourceQuotas: what is used of them, counted again."""

from moorage.controllers.resourcequotas.controller import ResourceQuotaController

__all__ = ["ResourceQuotaController"]
