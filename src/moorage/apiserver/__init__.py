"""API server: HTTPS requests from authentication to the registry.

request ─▶ authentication ─▶ authorization ─▶ negotiation ─▶ resources ─▶ registry
"""
