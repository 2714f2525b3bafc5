"""A pod's status: worked out from what is known, and written when it has changed."""
