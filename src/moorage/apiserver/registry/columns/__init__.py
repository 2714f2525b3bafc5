"""Table columns: rendering of objects as a Table, and cells that several kinds share.

    printer + objects ──table──▶ Table JSON

A kind's own columns are in its module in `apiserver/registry/kinds/`. Names, types, priorities and
descriptions of the columns are those that Kubernetes 1.36 sends. Source: API docs "Receiving
resources as Tables".
"""
