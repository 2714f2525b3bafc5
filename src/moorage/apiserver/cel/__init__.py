"""CEL: the Common Expression Language, as Kubernetes evaluates it.

    evaluator.py ── one process, replaced when it is lost ──▶ worker.py
        schema_checks.py         rules of a schema when it is written
        ├─ typed_schema.py       its objects as message types
        └─ costs.py              what a rule can cost: checked.py, declared.py
        schema_rules.py          rules of a schema when an object is written
        └─ values.py             JSON ▶ CEL values
        policies.py, mutations.py  admission policies
        └─ policy_scope.py       what their expressions see
        program.py               one expression, and budgets of several
        ├─ counted.py            the tree that counts what an evaluation costs
        ├─ construction.py       text that the library does not take as it is
        └─ environment.py        what expressions may use
           └─ library/           functions of Kubernetes

Expressions are other people's programs: they are evaluated in a process of their own, with bounds
on memory and time (docs/decisions/074-cel.md). Only that process loads the CEL library. Source: API
docs "Common Expression Language in Kubernetes", the CEL specification.
"""
