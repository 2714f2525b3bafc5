"""The HTTPS endpoint the API server calls: logs, exec, attach, port-forward, statistics."""
