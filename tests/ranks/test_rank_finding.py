"""Which process of which job this is, from what launchers leave in the environment."""

import subprocess
import sys
import types
from typing import Any

import pytest

from eventlog._ranks import Job, Standing, find_job, find_standing

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "GROUP_RANK": "1",
    "MASTER_ADDR": "node1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_RESTART_COUNT": "0",
}
SRUN = {
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "16",
    "SLURM_STEP_NUM_TASKS": "4",
}


@pytest.mark.parametrize(
    ("environ", "rank", "world_size"),
    [
        ({}, 0, 1),
        (TORCHRUN, 5, 8),
        (SRUN, 3, 4),
        # srun starts one torchrun a node
        (SRUN | TORCHRUN, 5, 8),
        # Lightning's own processes, on the first node and on a further one
        ({"LOCAL_RANK": "2", "NODE_RANK": "0", "WORLD_SIZE": "4"}, 2, 4),
        ({"LOCAL_RANK": "1", "NODE_RANK": "1", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "4"}, 3, 4),
        ({"LOCAL_RANK": "2"}, 2, 3),
        # SLURM's variables are also there where Lightning starts the processes
        (SRUN | {"LOCAL_RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "0"}, 1, 2),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "SLURM_PROCID": "0"}, 1, 2),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, 1, 2),
        ({"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "2"}, 1, 2),
        ({"JSM_NAMESPACE_RANK": "6", "JSM_NAMESPACE_SIZE": "12"}, 6, 12),
        # what is no rank says nothing
        ({"RANK": "x", "WORLD_SIZE": "2"}, 0, 1),
        ({"RANK": "2", "WORLD_SIZE": "2"}, 0, 1),
        ({"RANK": "1"}, 0, 1),
    ],
)
def test_a_rank_is_found_in_the_environment(
    environ: dict[str, str], rank: int, world_size: int
) -> None:
    """The launcher that started this very process comes before those around it."""
    found = find_standing(environ=environ)
    assert (found.rank, found.world_size, found.exact) == (rank, world_size, True)


def test_a_rank_that_cannot_be_told_is_no_main_rank() -> None:
    """Lightning's further nodes do not say how many processes each has."""
    found = find_standing(environ={"LOCAL_RANK": "0", "NODE_RANK": "1", "WORLD_SIZE": "4"})
    assert found.rank > 0
    assert not found.exact


def test_what_the_user_says_comes_first() -> None:
    """Before any environment."""
    assert find_standing(1, 3, TORCHRUN)[:2] == (1, 3)


@pytest.mark.parametrize(
    ("rank", "world_size", "error"),
    [(1, None, ValueError), (2, 2, ValueError), (-1, 2, ValueError), (True, 2, TypeError)],
)
def test_what_is_no_rank_is_refused(rank: Any, world_size: Any, error: type[Exception]) -> None:
    """With what it must be."""
    with pytest.raises(error, match="rank"):
        find_standing(rank, world_size, {})


def test_a_process_group_that_is_there_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows better than the environment; one that is not initialised is not."""
    group: Any = types.ModuleType("torch.distributed")
    group.is_available = lambda: True
    group.is_initialized = lambda: True
    group.get_rank, group.get_world_size = lambda: 1, lambda: 2
    monkeypatch.setitem(sys.modules, "torch.distributed", group)
    assert find_standing(environ=TORCHRUN) == Standing(1, 2, "torch.distributed")
    group.is_initialized = lambda: False
    assert find_standing(environ=TORCHRUN).rank == 5
    # in the middle of its import
    monkeypatch.setitem(sys.modules, "torch.distributed", types.ModuleType("half"))
    assert find_standing(environ=TORCHRUN).rank == 5


def test_torch_is_not_imported_to_find_a_rank() -> None:
    """Nor is anything else that is heavy."""
    code = (
        "import os, sys; os.environ.update(RANK='1', WORLD_SIZE='2')\n"
        "import eventlog; run = eventlog.Run('p', sinks=[])\n"
        "assert (run.rank, run.world_size) == (1, 2)\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("environ", "job"),
    [
        ({}, None),
        (TORCHRUN, Job("master node1:29500", 0, None, False)),
        (
            TORCHRUN | {"TORCHELASTIC_RUN_ID": "exp", "TORCHELASTIC_RESTART_COUNT": "2"},
            Job("torchelastic exp", 2),
        ),
        (SRUN | {"SLURM_RESTART_COUNT": "1"}, Job("slurm 77.0", 1)),
        (SRUN | TORCHRUN, Job("slurm 77.0 node1:29500", 0, None, False)),
        (SRUN | {"EVENTLOG_RUN_ID": "mine"}, Job("id mine", 0, "mine")),
        ({"PMIX_NAMESPACE": "prterun-1@1"}, Job("PMIX_NAMESPACE prterun-1@1")),
    ],
)
def test_a_job_is_found_in_the_environment(environ: dict[str, str], job: Job | None) -> None:
    """By what is the same for all its processes; torchrun's "none" is no name."""
    assert find_job(environ=environ) == job


def test_two_hosts_with_jobs_on_their_own_loopback_are_two_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both say localhost:29500, and may share a file system."""
    environ = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    jobs = []
    for host in ("a", "b"):
        monkeypatch.setattr("socket.gethostname", lambda host=host: host)
        jobs.append(find_job(environ=environ))
    assert jobs[0] != jobs[1]


def test_a_run_id_that_is_given_comes_first() -> None:
    """Before the environment's."""
    found = find_job("mine", {"EVENTLOG_RUN_ID": "theirs"})
    assert found is not None
    assert found.run_id == "mine"
