"""Validation that several kinds share: metadata, pod specifications and their parts.

Pure functions on canonical objects, each returning the errors in upstream's order and words. A
kind's own validation is in its module in `registry/kinds/`.
"""
