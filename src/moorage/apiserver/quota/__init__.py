"""Quotas: what objects use of a ResourceQuota, the same for admission and its controller.

    matching.py ──▶ charges.py   how an object of each kind is charged, and which scopes it is in
                └─▶ amounts.py   arithmetic on lists of resources

Source: KEP-19, API docs "Resource Quotas"; kube-apiserver `quota/v1`.
"""

from moorage.apiserver.quota.amounts import Amounts
from moorage.apiserver.quota.charges import Charge, charge_of
from moorage.apiserver.quota.matching import is_subject, used_by

__all__ = ["Amounts", "Charge", "charge_of", "is_subject", "used_by"]
