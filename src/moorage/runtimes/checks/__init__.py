"""Checks of manifests against classes, profiles and policies, without an API server.

    manifests.py ──▶ check.py ──▶ results.py ──▶ report.py   text, JSON, SARIF
    facts.py ───────┘

The rules are `moorage.runtimeclass`'s, the same that admission applies.
"""

from moorage.runtimes.checks.check import check_manifests
from moorage.runtimes.checks.facts import Facts, FactsError, facts_of_cluster
from moorage.runtimes.checks.manifests import Manifest, UnreadableError, read_manifests
from moorage.runtimes.checks.report import ERROR, FORMATS, WARNING, Result, report

__all__ = [
    "ERROR",
    "FORMATS",
    "WARNING",
    "Facts",
    "FactsError",
    "Manifest",
    "Result",
    "UnreadableError",
    "check_manifests",
    "facts_of_cluster",
    "read_manifests",
    "report",
]
