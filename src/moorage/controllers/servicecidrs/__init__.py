"""Networks of cluster IPs: their readiness and deletion, and the IPAddresses of services."""

from moorage.controllers.servicecidrs.addresses import IPAddressController
from moorage.controllers.servicecidrs.controller import ServiceCIDRController

__all__ = ["IPAddressController", "ServiceCIDRController"]
