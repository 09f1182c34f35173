"""Figures of runs for a paper, by matplotlib, and the palette, style and layout that pages, experiments and `--plot` share."""
