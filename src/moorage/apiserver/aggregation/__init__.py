"""Aggregation: API groups that extension servers serve, behind APIServices.

    request ─▶ forward.py ─▶ the extension server, as its user     services.py   which there are
               backend.py     mutual TLS with the front proxy       local.py      the server's own
    availability.py           whether they answer                   discovery.py  what they serve
    openapi.py, swagger.py    its description

Source: API docs "Kubernetes API Aggregation Layer"; kube-aggregator of Kubernetes 1.36.
"""

from moorage.apiserver.aggregation.availability import Availability
from moorage.apiserver.aggregation.backend import Backends, ExtensionProxy, FrontProxy, write_trust
from moorage.apiserver.aggregation.discovery import ExtensionDiscovery, ExtensionSwagger
from moorage.apiserver.aggregation.openapi import ExtensionDocuments, LocalServices
from moorage.apiserver.aggregation.services import Extensions

__all__ = [
    "Availability",
    "Backends",
    "ExtensionDiscovery",
    "ExtensionDocuments",
    "ExtensionProxy",
    "ExtensionSwagger",
    "Extensions",
    "FrontProxy",
    "LocalServices",
    "write_trust",
]
