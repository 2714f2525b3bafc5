"""Custom resources: kinds built from CustomResourceDefinitions while the server runs.

    CustomResourceDefinition ── structure.py ──▶ Structure of each version
                                                  ├─ pruning.py     drops unknown fields
                                                  ├─ defaulting.py  sets defaults
                                                  └─ rules.py       validates values

Everything here is pure: no store, no HTTP. Source: API docs "Extend the Kubernetes API with
CustomResourceDefinitions".
"""
