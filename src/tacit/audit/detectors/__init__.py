"""Cheap detectors for one's own settings: they run the real engine and the real oracle on made-up records.

They are for the experimenter: some run with hardly any noise, so that lots and sums can be read. No private record is used.
"""
