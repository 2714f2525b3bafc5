"""CEL: the Common Expression Language, as Kubernetes evaluates it.

    evaluator.py ── one process, replaced when it is lost ──▶ worker.py
        schema_rules.py          rules of a schema
        └─ values.py             JSON ▶ CEL values
        └─ program.py            one expression
           └─ environment.py     what expressions may use
              └─ library/        functions of Kubernetes

Expressions are other people's programs: they are evaluated in a process of their own, with bounds
on memory and time (docs/decisions/074-cel.md). Only that process loads the CEL library. Source: API
docs "Common Expression Language in Kubernetes", the CEL specification.
"""
