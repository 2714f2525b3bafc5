"""The API over HTTPS: who asks, may they, in which form, and then the registry.

request ─▶ authentication ─▶ authorization ─▶ negotiation ─▶ resources ─▶ registry
"""
