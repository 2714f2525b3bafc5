"""Garbage collection: dead containers and sandboxes, orphaned pods, images, local storage
limits.
"""
