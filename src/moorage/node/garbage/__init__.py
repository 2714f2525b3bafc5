"""Garbage collection: dead containers and sandboxes, orphans, images, storage limits."""
