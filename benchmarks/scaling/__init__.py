"""How eventlog's own costs grow: the parts of scale.py, each measure in a process of its own."""
