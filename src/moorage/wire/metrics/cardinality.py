"""Label budget: a bound on the number of series that users' names can create."""

from __future__ import annotations

from moorage.wire.metrics.families import Labels

OTHER = "other"
"""Value of the labels of everything beyond the budget."""


class LabelBudget:
    """The first `limit` combinations of label values; all later ones are `other`."""

    def __init__(self, limit: int = 100) -> None:
        self._limit = limit
        self._known: set[Labels] = set()

    def of(self, *values: str) -> Labels:
        """Return the values, or OTHER in place of each when the budget is used up."""
        if values not in self._known:
            if len(self._known) >= self._limit:
                return (OTHER,) * len(values)
            self._known.add(values)
        return values
