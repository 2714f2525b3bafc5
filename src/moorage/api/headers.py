"""HTTP headers that the API server and its clients share."""

STORE_HEADER = "Moorage-Store"
"""Sent with lists and watches: the identity of the store.

A client that acts on objects missing from a list compares it with the identity it knows.
"""
