"""Efficiency: the work that tokens took, against time, peaks and energy."""
