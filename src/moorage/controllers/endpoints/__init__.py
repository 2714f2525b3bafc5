"""The addresses behind services, in both forms that the API has."""

from moorage.controllers.endpoints.controller import EndpointsController

__all__ = ["EndpointsController"]
