"""``python -m eventlog``: the command line, for where its script is not on the path."""

from eventlog.cli import main

if __name__ == "__main__":
    main("python -m eventlog")
