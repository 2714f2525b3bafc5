"""Attachment of Moorage to a Kubernetes cluster that is not ours, as an add-on.

values ──manifests──▶ objects ──survey, changes──▶ what would change ──installation──▶ the cluster
"""
