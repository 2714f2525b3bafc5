"""Label budgets."""

from __future__ import annotations

from moorage.wire.metrics.families import LabelBudget


def test_names_beyond_the_budget_are_one_series() -> None:
    budget = LabelBudget(limit=2)
    assert [budget.of(name, "runc") for name in ("a", "b", "c", "a")] == [
        ("a", "runc"), ("b", "runc"), ("other", "other"), ("a", "runc"),
    ]  # fmt: skip
