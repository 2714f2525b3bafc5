"""Pod status: computed from the observed state, and written when it has changed."""
