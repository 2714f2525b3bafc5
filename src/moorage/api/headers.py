"""HTTP headers that the API server and its clients share."""

STORE_HEADER = "Moorage-Store"
"""On lists and watches: the identity of the store that answers.

A client that acts on what is missing from a list compares it with the one it knows.
"""
