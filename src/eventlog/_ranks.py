"""Which of a job's processes this one is, and which job: found without asking any of the others.

No process group is made or used, and torch is not imported. Of what follows, the first that has an
answer counts:

1. ``Run(rank=, world_size=)``;
2. a process group of `torch.distributed`, where this process has one already: it knows its rank;
3. ``RANK`` and ``WORLD_SIZE``: torchrun, Accelerate, DeepSpeed, the operators of Kubernetes;
4. ``LOCAL_RANK`` (and ``NODE_RANK``): the processes that Lightning starts;
5. ``OMPI_COMM_WORLD_RANK``, ``PMI_RANK``, ``MV2_COMM_WORLD_RANK``: MPI;
6. ``JSM_NAMESPACE_RANK``: jsrun on LSF;
7. ``SLURM_PROCID``: srun. It is last, for it is also there where SLURM starts one process a node,
   which then starts others.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["RUN_ID", "Job", "Standing", "find_job", "find_standing"]

RUN_ID = "EVENTLOG_RUN_ID"

_PAIRS = (
    ("OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",)),
    ("PMI_RANK", ("PMI_SIZE",)),
    ("MV2_COMM_WORLD_RANK", ("MV2_COMM_WORLD_SIZE",)),
    ("JSM_NAMESPACE_RANK", ("JSM_NAMESPACE_SIZE",)),
    ("SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")),
)
_MPI_JOBS = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "LSB_JOBID", "PBS_JOBID")


class Standing(NamedTuple):
    """Which of a job's processes this one is.

    Attributes:
        rank: From 0.
        world_size: How many there are; at least ``rank + 1`` where nobody says.
        source: What said so.
        exact: Whether no other process can have this rank; False on the further nodes of a job
            that does not say how many processes each node has.
    """

    rank: int = 0
    world_size: int = 1
    source: str = ""
    exact: bool = True


class Job(NamedTuple):
    """What is started together: the same in all its processes.

    Attributes:
        id: Of the job. Launchers give the same one to a later job, too (a default port, say).
        restart: How often the launcher has started it again.
        run_id: The run's id, where somebody chose it.
        lasting: Whether a restart that is not of the same parent process has this id as well.
    """

    id: str
    restart: int = 0
    run_id: str | None = None
    lasting: bool = True


def find_standing(
    rank: int | None = None,
    world_size: int | None = None,
    environ: Mapping[str, str] | None = None,
) -> Standing:
    """Return which of a job's processes this one is; the only one where nothing says otherwise.

    Args:
        rank, world_size: As the user says.
        environ: Instead of this process's own environment.

    Raises:
        TypeError, ValueError: They are no rank and world size.
    """
    if rank is not None or world_size is not None:
        return _given(rank, world_size)
    environ = os.environ if environ is None else environ
    return _of_group() or _of_torch(environ) or _of_lightning(environ) or _of_others(environ)


def _given(rank: Any, world_size: Any) -> Standing:
    if rank is None or world_size is None:
        raise ValueError("rank and world_size must be given together")
    for name, value in (("rank", rank), ("world_size", world_size)):
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{name} must be an integer, not {value!r}")
    if not 0 <= rank < world_size:
        raise ValueError(f"rank must be from 0 to world_size - 1, not {rank} of {world_size}")
    return Standing(rank, world_size, "argument")


def _of_group() -> Standing | None:
    """Ask the process group, where there is one; what it says is known without communication."""
    distributed: Any = sys.modules.get("torch.distributed")
    try:
        if distributed is None or not distributed.is_available():
            return None
        if not distributed.is_initialized():
            return None
        rank, world_size = distributed.get_rank(), distributed.get_world_size()
    except Exception:  # half imported, or a stand-in
        return None
    return Standing(int(rank), int(world_size), "torch.distributed") if rank >= 0 else None


def _of_torch(environ: Mapping[str, str]) -> Standing | None:
    return _pair(environ, "RANK", ("WORLD_SIZE",))


def _of_lightning(environ: Mapping[str, str]) -> Standing | None:
    """Lightning tells its processes their place on the node, and which node that is."""
    local = _number(environ, "LOCAL_RANK")
    if local is None:
        return None
    node = _number(environ, "NODE_RANK", "GROUP_RANK") or 0
    each = _number(environ, "LOCAL_WORLD_SIZE")
    rank = local + node * (each or 1)
    world_size = max(_number(environ, "WORLD_SIZE") or 1, rank + 1)
    return Standing(rank, world_size, "LOCAL_RANK", exact=node == 0 or each is not None)


def _of_others(environ: Mapping[str, str]) -> Standing:
    for name, sizes in _PAIRS:
        found = _pair(environ, name, sizes)
        if found is not None:
            return found
    return Standing()


def _pair(environ: Mapping[str, str], name: str, sizes: tuple[str, ...]) -> Standing | None:
    rank, world_size = _number(environ, name), _number(environ, *sizes)
    if rank is None or world_size is None or rank >= world_size:
        return None
    return Standing(rank, world_size, name)


def _number(environ: Mapping[str, str], *names: str) -> int | None:
    for name in names:
        text = environ.get(name, "").strip()
        if text.isascii() and text.isdigit():
            return int(text)
    return None


def find_job(run_id: str | None = None, environ: Mapping[str, str] | None = None) -> Job | None:
    """Return which job this process belongs to; None where nothing tells its processes so.

    Args:
        run_id: The run's id as the user says; ``EVENTLOG_RUN_ID`` otherwise.
        environ: Instead of this process's own environment.
    """
    environ = os.environ if environ is None else environ
    elastic = environ.get("TORCHELASTIC_RUN_ID", "")
    restart = _number(environ, "TORCHELASTIC_RESTART_COUNT")
    if restart is None:
        restart = _number(environ, "SLURM_RESTART_COUNT") or 0
    chosen = run_id or environ.get(RUN_ID)
    if chosen:
        return Job(f"id {chosen}", restart, chosen)
    # without --standalone or --rdzv-id, all of torchrun's jobs are called "none"
    if elastic not in ("", "none"):
        return Job(f"torchelastic {elastic}", restart)
    address = _address(environ)
    slurm = environ.get("SLURM_JOB_ID")
    if slurm:
        # there may be several torchruns in one step, each with a port of its own
        port = f" {address}" if address and "RANK" in environ else ""
        step = environ.get("SLURM_STEP_ID", "batch")
        return Job(f"slurm {slurm}.{step}{port}", restart, lasting=not port)
    for name in _MPI_JOBS:
        if environ.get(name):
            return Job(f"{name} {environ[name]}", restart)
    return None if address is None else Job(f"master {address}", restart, lasting=False)


def _address(environ: Mapping[str, str]) -> str | None:
    """Return where the job's processes meet; with the host where that is one for each host."""
    host, port = environ.get("MASTER_ADDR"), environ.get("MASTER_PORT")
    if not host or not port:
        return None
    local = host in ("localhost", "::1", "0.0.0.0") or host.startswith("127.")  # noqa: S104 - compared
    return f"{host}:{port}{' on ' + socket.gethostname() if local else ''}"
