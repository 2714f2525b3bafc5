"""Resource metrics: `metrics.k8s.io`, what nodes and pods use, measured on request."""

from moorage.apiserver.endpoints.resource_metrics.answers import ResourceMetrics
from moorage.apiserver.endpoints.resource_metrics.scraper import NodeScraper

__all__ = ["NodeScraper", "ResourceMetrics"]
