"""Tacit: train one model across agents that never show each other their data."""
