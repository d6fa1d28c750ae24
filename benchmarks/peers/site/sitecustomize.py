"""Refuses to look up hosts other than this one, in every Python process of the comparison.

Some libraries look for updates also when they are offline, and no setting stops all of them. What
was refused is noted in the file that COMPARE_HOSTS names. Python imports this module at its start,
as its folder is on the path.
"""

import os
import socket

_look_up = socket.getaddrinfo
_LOCAL = {"", "localhost", "::1", "0.0.0.0", "::", socket.gethostname()}  # noqa: S104 - nothing is bound


def _only_here(host, *arguments, **options):  # type: ignore[no-untyped-def]
    name = host.decode(errors="replace") if isinstance(host, bytes) else str(host or "")
    if name in _LOCAL or name.startswith("127."):
        return _look_up(host, *arguments, **options)
    place = os.environ.get("COMPARE_HOSTS")
    if place:
        with open(place, "a") as file:
            file.write(f"{name}\n")
    raise socket.gaierror(socket.EAI_NONAME, f"{name} is not looked up: see benchmarks/peers/site")


socket.getaddrinfo = _only_here
