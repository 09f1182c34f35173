"""Attacks and the systems they attack.

An attack is any object with `scores(trials, present=..., seed=...)`: it plays runs with the record or without and scores each.
`collect`, `judge` and the page of scores need nothing else. An attack from inside the graph starts from `CuriousAgents`, which has the
observers' view.
"""
