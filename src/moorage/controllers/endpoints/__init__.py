"""Endpoints of services, as Endpoints and as EndpointSlices."""

from moorage.controllers.endpoints.controller import EndpointsController

__all__ = ["EndpointsController"]
