"""Ways to log three numbers a step, and what is measured of each: the parts of compare.py."""
