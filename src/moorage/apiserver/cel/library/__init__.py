"""Functions that Kubernetes adds to CEL, one module per library.

Each module has `functions()`, which returns the signatures. Source: API docs "CEL libraries";
apiserver `pkg/cel/library` of Kubernetes 1.36.
"""
