"""Validation shared by several kinds: metadata, pod specifications and their parts.

Pure functions on canonical objects; each returns the errors in upstream's order and wording. A
kind's own validation is in its module in `apiserver/registry/kinds/`.
"""
