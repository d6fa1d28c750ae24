"""The trackers' own calls, as their quick starts have them, offline or on the loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

from peers.base import LR, NAMES, Case, Opened, fewest, sdk


def summary_writer(folder: Path) -> Opened:
    writer = sdk("torch.utils.tensorboard").SummaryWriter(str(folder / "tb"))

    def log(step: int, loss: float, accuracy: float, lr: float) -> None:
        writer.add_scalar("loss", loss, step)
        writer.add_scalar("accuracy", accuracy, step)
        writer.add_scalar("lr", lr, step)

    return Opened(log, writer.close)


def read_tensorboard(folder: Path) -> int:
    """Count with TensorBoard's own reader, wherever below the folder the files are."""
    module = sdk("tensorboard.backend.event_processing.event_accumulator")
    found: Counter[str] = Counter()
    for path in folder.rglob("events.out.tfevents.*"):
        accumulator = module.EventAccumulator(str(path), size_guidance={"scalars": 0})
        accumulator.Reload()
        for tag in accumulator.Tags()["scalars"]:
            found[tag.rpartition("/")[2]] += len(accumulator.Scalars(tag))
    return fewest(found)


def wandb(folder: Path) -> Opened:
    run = sdk("wandb").init(project="bench", mode="offline", dir=str(folder), config={"lr": LR})

    def log(step: int, loss: float, accuracy: float, lr: float) -> None:
        run.log({"loss": loss, "accuracy": accuracy, "lr": lr})

    return Opened(log, run.finish)


def read_wandb(folder: Path) -> int:
    """Count the rows that W&B's own command prints."""
    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(path)]
    lines = subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()
    rows = [json.loads(line)["history"] for line in lines if '"type":"history"' in line]
    return fewest(Counter(key for row in rows for key in row["item"]))


def comet(folder: Path) -> Opened:
    experiment = sdk("comet_ml").OfflineExperiment(
        project_name="bench", offline_directory=str(folder)
    )

    def log(step: int, loss: float, accuracy: float, lr: float) -> None:
        experiment.log_metrics({"loss": loss, "accuracy": accuracy, "lr": lr}, step=step)

    return Opened(log, experiment.end)


def read_comet(folder: Path) -> int:
    """Count the metrics in the archive that `comet upload` takes."""
    (path,) = folder.glob("*.zip")
    with zipfile.ZipFile(path) as archive:
        lines = archive.read("messages.json").decode().splitlines()
    messages = [json.loads(line) for line in lines]
    metrics = [m["payload"]["metric"] for m in messages if m.get("type") == "metric_msg"]
    return fewest(Counter(metric["metricName"] for metric in metrics))


def aim(folder: Path) -> Opened:
    run = sdk("aim").Run(repo=str(folder), experiment="bench")
    run["hparams"] = {"lr": LR}

    def log(step: int, loss: float, accuracy: float, lr: float) -> None:
        run.track(loss, name="loss", step=step)
        run.track(accuracy, name="accuracy", step=step)
        run.track(lr, name="lr", step=step)

    return Opened(log, run.close)


def read_aim(folder: Path) -> int:
    """Index the run, as `aim up` does from time to time, and count its values."""
    repo = sdk("aim").Repo(str(folder))
    (hash_,) = repo.list_all_runs()
    sdk("aim.sdk.index_manager").RepoIndexManager(repo).index(hash_)
    repo.container_pool.clear()
    run = repo.get_run(hash_)
    return fewest({m.name: len(m.data.items_list()[0]) for m in run.metrics() if m.name in NAMES})


def clearml(folder: Path) -> Opened:
    task = sdk("clearml").Task.init("bench", "bench")
    logger = task.get_logger()

    def log(step: int, loss: float, accuracy: float, lr: float) -> None:
        logger.report_scalar("loss", "train", loss, step)
        logger.report_scalar("accuracy", "train", accuracy, step)
        logger.report_scalar("lr", "train", lr, step)

    return Opened(log, task.close)


def clearml_plain(folder: Path) -> Opened:
    """Report from the process itself, which a configuration file asks for."""
    path = folder / "clearml.conf"
    path.write_text("sdk { development { report_use_subprocess: false } }\n")
    os.environ["CLEARML_CONFIG_FILE"] = str(path)
    return clearml(folder)


def read_clearml(folder: Path) -> int:
    """Read the session's folder, or the archive that closing makes of it."""
    found: Counter[str] = Counter()
    for path in folder.rglob("metrics.jsonl"):
        for line in path.read_text().splitlines():
            if line.endswith("]"):
                found.update(event.get("metric", "") for event in json.loads(line))
    return fewest(found)


def dvclive(folder: Path) -> Opened:
    live = sdk("dvclive").Live(str(folder / "dvclive"), save_dvc_exp=False)

    def log(step: int, loss: float, accuracy: float, lr: float) -> None:
        live.log_metric("loss", loss)
        live.log_metric("accuracy", accuracy)
        live.log_metric("lr", lr)
        live.next_step()

    return Opened(log, live.end)


def read_dvclive(folder: Path) -> int:
    """Parse its tables with its own function."""
    parse = sdk("dvclive.utils").parse_tsv
    place = folder / "dvclive" / "plots" / "metrics"
    return fewest({name: len(parse(place / f"{name}.tsv")) for name in NAMES})


def trackio(folder: Path) -> Opened:
    module = sdk("trackio")
    module.init(project="bench", name="bench")

    def log(step: int, loss: float, accuracy: float, lr: float) -> None:
        module.log({"loss": loss, "accuracy": accuracy, "lr": lr})

    return Opened(log, module.finish)


def read_trackio(folder: Path) -> int:
    rows = sdk("trackio.sqlite_storage").SQLiteStorage.get_logs("bench", "bench")
    return fewest(Counter(key for row in rows for key in row))


def swanlab(folder: Path) -> Opened:
    module = sdk("swanlab")
    module.init(project="bench", mode="offline", logdir=str(folder))

    def log(step: int, loss: float, accuracy: float, lr: float) -> None:
        module.log({"loss": loss, "accuracy": accuracy, "lr": lr}, step=step)

    return Opened(log, module.finish)


def read_swanlab(folder: Path) -> int:
    """Scan the file that `swanlab sync` sends."""
    reader = sdk("swanlab.sdk.internal.core_python.store").DataStoreReader()
    parse = vars(sdk("swanlab.proto.swanlab.record.v1.record_pb2"))["Record"].FromString
    (path,) = folder.glob("run-*/*.swanlab")
    found: Counter[str] = Counter()
    reader.open(path)
    for data in reader:
        record: Any = parse(data)
        if record.WhichOneof("record_type") == "scalar":
            found[record.scalar.key] += 1
    reader.close()
    return fewest(found)


def neptune(folder: Path) -> Opened:
    run = sdk("neptune_scale").Run(
        project="bench/bench", run_id="bench", mode="offline", log_directory=str(folder)
    )
    run.log_configs({"lr": LR})

    def log(step: int, loss: float, accuracy: float, lr: float) -> None:
        run.log_metrics({"loss": loss, "accuracy": accuracy, "lr": lr}, step=step)

    return Opened(log, run.close)


def read_neptune(folder: Path) -> int:
    """Read the operations that `neptune sync` sends."""
    module = sdk("neptune_scale.sync.operations_repository")
    (path,) = folder.glob("*/run_operations.sqlite3")
    repository = module.OperationsRepository(path.absolute())
    found: Counter[str] = Counter()
    last = None
    while rows := repository.get_operations(64 * 2**20, last):
        last = rows[-1].sequence_id
        for row in rows:
            if hasattr(row.operation, "append"):
                found.update(row.operation.append.keys())
    repository.close(cleanup_files=False)
    return fewest(found)


CASES = [
    Case("summarywriter", "trackers", "SummaryWriter.add_scalar x 3", summary_writer,
         read_tensorboard, needs=("torch", "tensorboard")),
    Case("wandb", "trackers", "wandb run.log, offline", wandb, read_wandb, needs=("wandb",)),
    Case("comet", "trackers", "comet OfflineExperiment.log_metrics", comet, read_comet,
         needs=("comet_ml",)),
    Case("aim", "trackers", "aim Run.track x 3", aim, read_aim, needs=("aim",)),
    Case("clearml", "trackers", "clearml report_scalar x 3, offline", clearml, read_clearml,
         needs=("clearml",)),
    Case("clearml-no-subprocess", "trackers", "clearml, subprocess reporting off", clearml_plain,
         read_clearml, needs=("clearml",)),
    Case("dvclive", "trackers", "dvclive log_metric x 3 + next_step", dvclive, read_dvclive,
         needs=("dvclive",)),
    Case("trackio", "trackers", "trackio.log", trackio, read_trackio, needs=("trackio",)),
    Case("swanlab", "trackers", "swanlab.log, offline", swanlab, read_swanlab, needs=("swanlab",)),
    Case("neptune-scale", "trackers", "neptune-scale log_metrics, offline", neptune, read_neptune,
         needs=("neptune_scale",)),
]  # fmt: skip
