"""Figures of runs for a paper, by matplotlib."""
