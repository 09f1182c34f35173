"""Attacks on the promise, and what they prove."""
