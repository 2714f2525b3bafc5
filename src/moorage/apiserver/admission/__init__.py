"""Admission of writes: the chain and its plugins, between a decoded request and the store.

Plugins depend on objects and users, never on HTTP. Their order matters: `apiserver.assembly` passes
them in the order in which they run.
"""
