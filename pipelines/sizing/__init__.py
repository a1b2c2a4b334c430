"""Sizing: what hardware carries the load within the SLO, and at what cost."""
