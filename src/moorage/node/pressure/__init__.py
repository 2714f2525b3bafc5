"""Node pressure, decided: thresholds, when they are met, and which pod is evicted. Pure."""
