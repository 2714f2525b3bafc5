"""Admission: the chain and its plugins, between a valid request and the store.

Plugins depend on objects and users, never on HTTP. Order is behaviour: `apiserver.assembly` passes
the plugins in the order in which they run.
"""
