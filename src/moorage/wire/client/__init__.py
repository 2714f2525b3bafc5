"""API client for Moorage's or any Kubernetes API server: requests, informers, work queues.

Controllers, the scheduler and the node agent reach the cluster only through this package, so each
of them works unchanged against either server. Nothing is imported here: what reads a kubeconfig
needs no HTTP.
"""
