"""What a kind is, and the one path by which every kind is created, read, changed and deleted."""
