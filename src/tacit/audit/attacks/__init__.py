"""The attacks, the systems that they are run on, and how many runs of them are collected."""
