"""The machine and its engine: what they are, how they fare, and how the API learns of it."""
