"""Container probes: liveness, readiness and startup."""
