"""Endpoints of the API: from a routed request to its reply, for every verb and body."""
