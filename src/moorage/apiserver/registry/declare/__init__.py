"""Declared kinds: rules, columns, defaults and immutable fields as rows of tables.

    rows ──validator, printer, defaults──▶ one function each, compiled at import

A row names a field by its path: `spec.replicas`, with `[*]` for the items of a list or the values
of a map (`spec.drivers[*].nodeID`). Each table is compiled once, since kinds of the hot path use
them too. What is a rule only in code stays code and is a check in a row, or a function beside it.
"""
