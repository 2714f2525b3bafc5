"""Programs of `make` that are no part of the product."""
