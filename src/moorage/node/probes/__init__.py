"""Probes: asking containers whether they live, serve and have started."""
