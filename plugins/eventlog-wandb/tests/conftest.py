"""No home, no key and no W&B variables from outside; and a small W&B server on loopback."""

from __future__ import annotations

import gzip
import json
import os
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True, scope="module")
def _no_outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("WANDB_"):
                patch.delenv(name)
        patch.delenv("NETRC", raising=False)
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(autouse=True)
def _own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


class FakeServer:
    """As much of W&B's server as a run needs: it keeps rows, summary, config and files.

    Attributes:
        url: Its address.
        status: Answered to everything, where it is not None.
        runs: What is known of each run, by its id.
        files: Contents by name.
        artifacts: What was said of each.
        keys: The keys that requests came with.
        deleted: Ids that are not taken again.
    """

    def __init__(self) -> None:
        self.status: int | None = None
        self.runs: dict[str, dict[str, Any]] = {}
        self.files: dict[str, bytes] = {}
        self.artifacts: list[dict[str, Any]] = []
        self.keys: set[str] = set()
        self.deleted: set[str] = set()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args: object) -> None:
                pass

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                fake.keys.add(self.headers.get("Authorization", ""))
                answer, code = fake.answer(self.path, body)
                data = json.dumps(answer).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_PUT = do_GET = do_POST

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def rows(self, run: str) -> list[dict[str, Any]]:
        lines = self.runs[run]["lines"]
        return [lines[number] for number in sorted(lines)]

    def answer(self, path: str, body: bytes) -> tuple[dict[str, Any], int]:
        if self.status is not None:
            return {"errors": [{"message": "as the test wants"}]}, self.status
        if path == "/graphql":
            asked = json.loads(body)
            return self._query(asked.get("operationName"), asked.get("variables") or {})
        stream = re.fullmatch(r"/files/[^/]+/[^/]+/([^/]+)/file_stream", path)
        if stream is not None:
            self._stream(stream[1], json.loads(body))
        elif path.startswith("/storage/"):
            self.files[path.removeprefix("/storage/")] = body
        return {}, 200

    def _run(self, run: str) -> dict[str, Any]:
        return self.runs.setdefault(run, {"lines": {}, "summary": "{}", "config": "{}"})

    def _stream(self, run: str, body: dict[str, Any]) -> None:
        found = self._run(run)
        for name, part in (body.get("files") or {}).items():
            if name == "wandb-history.jsonl":
                for number, line in enumerate(part["content"], part["offset"]):
                    found["lines"][number] = json.loads(line)
            elif name == "wandb-summary.json":
                found["summary"] = part["content"][-1]
        if body.get("complete"):
            found["exit"] = body.get("exitcode")

    def _query(self, name: str | None, told: dict[str, Any]) -> tuple[dict[str, Any], int]:
        owner = {"id": "P", "name": "p", "entity": {"id": "E", "name": "me"}}
        run = told.get("name")
        if name == "UpsertBucket" and isinstance(run, str):
            if run in self.deleted:
                message = f"run {run} was previously created and deleted; try a new run name"
                return {"errors": [{"message": message}]}, 409
            known = run in self.runs
            self._run(run).update({key: told[key] for key in ("config", "tags") if told.get(key)})
            bucket = {"id": run, "name": run, "displayName": run, "config": "{}", "project": owner}
            return {"data": {"upsertBucket": {"bucket": bucket, "inserted": not known}}}, 200
        if name == "RunResumeStatus" and isinstance(run, str):
            bucket = self._resumed(run) if run in self.runs else {}
            return {"data": {"model": owner | {"bucket": bucket or None}}}, 200
        if name == "CreateRunFiles":
            files = [{"name": n, "uploadUrl": f"{self.url}/storage/{n}"} for n in told["files"]]
            made = {"runID": "B", "uploadHeaders": [], "files": files}
            return {"data": {"createRunFiles": made}}, 200
        if name == "CreateArtifact":
            self.artifacts.append(told["input"])
            # says that it has the very same one already, so nothing more is sent
            same = {"id": "A", "state": "COMMITTED", "artifactSequence": {"latestArtifact": None}}
            return {"data": {"createArtifact": {"artifact": same}}}, 200
        if name == "Viewer":
            viewer = {"id": "U", "username": "me", "entity": "me", "flags": "{}", "email": ""}
            return {"data": {"viewer": viewer | {"teams": {"edges": []}}}}, 200
        return {"data": {"project": None}}, 200

    def _resumed(self, run: str) -> dict[str, Any]:
        found, rows = self.runs[run], self.rows(run)
        return {
            "id": run,
            "name": run,
            "displayName": run,
            "summaryMetrics": found["summary"],
            "config": found["config"],
            "tags": [],
            "logLineCount": 0,
            "eventsLineCount": 0,
            "historyLineCount": len(rows),
            "historyTail": json.dumps([json.dumps(row) for row in rows[-1:]]),
            "eventsTail": "[]",
            "wandbConfig": '{"t": 1}',
        }


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    monkeypatch.setenv("WANDB_API_KEY", "0123456789" * 4)
    fake = FakeServer()
    yield fake
    fake.close()
