"""Metrics: counters, gauges and histograms of a part, written as Prometheus text.

    part ─▶ its families ─┐
    WorkQueue ─▶ QueueMetrics ─▶ exposition text ─▶ the part's secure port
    Client ─▶ RequestMetrics ─┘

Names are upstream's where the meaning is the same. Every part has its own, and none is global.
"""

from moorage.wire.metrics.exposition import CONTENT_TYPE
from moorage.wire.metrics.families import (
    Counter,
    Family,
    Gauge,
    Histogram,
    HistogramSeries,
    exposition,
)
from moorage.wire.metrics.queues import QueueMetrics, QueueSeries, counting_queues, series_of
from moorage.wire.metrics.requests import RequestMetrics, process_families

__all__ = [
    "CONTENT_TYPE",
    "Counter",
    "Family",
    "Gauge",
    "Histogram",
    "HistogramSeries",
    "QueueMetrics",
    "QueueSeries",
    "RequestMetrics",
    "counting_queues",
    "exposition",
    "process_families",
    "series_of",
]
