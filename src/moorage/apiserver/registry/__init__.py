"""Registry: the declarations of all kinds, and the generic create, read, update and delete path."""
