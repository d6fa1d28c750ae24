"""From results to a page: the parts of report.py."""
