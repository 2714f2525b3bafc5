"""Every test here fails when a reconcile does."""

from __future__ import annotations

from tests.reconciling import no_failed_reconciles

__all__ = ["no_failed_reconciles"]
