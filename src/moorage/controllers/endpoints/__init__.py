"""Endpoints of services, as Endpoints and as EndpointSlices."""

from moorage.controllers.endpoints.controller import EndpointsController
from moorage.controllers.endpoints.mirroring import EndpointSliceMirroring

__all__ = ["EndpointSliceMirroring", "EndpointsController"]
