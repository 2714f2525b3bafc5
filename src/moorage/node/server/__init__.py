"""HTTPS endpoint for the API server: logs, exec, attach, port-forward, statistics."""
