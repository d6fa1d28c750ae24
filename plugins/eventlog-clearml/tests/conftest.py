"""A stand-in for ClearML's API and file servers, which need three databases to run."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


def _token() -> str:
    parts = ({"alg": "none"}, {"exp": time.time() + 86_400, "api_version": "2.23"})
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts)
    return ".".join(part.decode() for part in encoded) + "."


class ClearmlServer:
    """Keeps what the SDK sends, and fails as it is told.

    Attributes:
        tasks, events, files, calls: What arrived.
        fail, fail_on: The HTTP status of every answer to an action; 0 answers.
        retry_after: Header of a failing answer.
        file_status: The HTTP status of the file server.
    """

    def __init__(self) -> None:
        self.tasks: dict[str, dict[str, Any]] = {}
        self.projects: dict[str, str] = {}
        self.events: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}
        self.calls: list[str] = []
        self.fail, self.fail_on = 0, "events.add_batch"
        self.retry_after: str | None = None
        self.file_status = 200
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args: object) -> None:
                """Stay silent."""

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, answer = owner.answer(self.path, self.headers, body)
                content = json.dumps(answer).encode()
                self.send_response(status)
                if owner.retry_after and status != 200:
                    self.send_header("Retry-After", owner.retry_after)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = _answer

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def answer(self, path: str, headers: Any, body: bytes) -> tuple[int, dict[str, Any]]:
        action = path.rpartition("/")[2].partition("?")[0]
        if "multipart" in (headers.get("Content-Type") or ""):
            self.calls.append("upload")
            self.files.update(_parts(headers["Content-Type"], body))
            return self.file_status, {}
        self.calls.append(action)
        status, message, data = 200, "OK", {}
        if self.fail and action == self.fail_on:
            status, message = self.fail, "failing"
        elif action == "events.add_batch":
            added = [json.loads(line) for line in body.splitlines()]
            self.events += added
            data = {"added": len(added), "errors": 0}
        else:
            request = json.loads(body) if body else {}
            found = getattr(self, "_" + action.replace(".", "_"), self._nothing)(request)
            status, data = (400, {}) if found is None else (200, found)
        endpoint = {"name": action, "requested_version": "2.23", "actual_version": "2.23"}
        meta = {"id": "i", "trx": "t", "endpoint": endpoint, "result_code": status}
        meta |= {"result_subcode": 0, "result_msg": message, "error_stack": ""}
        return status, {"meta": meta, "data": data}

    def _nothing(self, request: dict[str, Any]) -> dict[str, Any] | None:
        return {"updated": 1, "fields": {}}

    def _auth_login(self, request: dict[str, Any]) -> dict[str, Any] | None:
        return {"token": _token()}

    def _projects_get_all(self, request: dict[str, Any]) -> dict[str, Any] | None:
        ids = request.get("id") or []
        pattern = request.get("name", "").strip("^$").replace("\\", "")
        found = [
            {"id": id_, "name": name}
            for name, id_ in self.projects.items()
            if name == pattern or id_ in ids
        ]
        return {"projects": found}

    def _projects_get_by_id(self, request: dict[str, Any]) -> dict[str, Any] | None:
        names = {id_: name for name, id_ in self.projects.items()}
        return {"project": {"id": request["project"], "name": names[request["project"]]}}

    def _projects_create(self, request: dict[str, Any]) -> dict[str, Any] | None:
        self.projects[request["name"]] = f"project{len(self.projects)}"
        return {"id": self.projects[request["name"]]}

    def _tasks_create(self, request: dict[str, Any]) -> dict[str, Any] | None:
        task_id = f"task{len(self.tasks)}"
        execution: dict[str, Any] = {"artifacts": []}
        fresh = {
            "id": task_id,
            "status": "created",
            "execution": execution,
            "hyperparams": {},
            "output": {},
        }
        self.tasks[task_id] = request | fresh
        return {"id": task_id}

    def _tasks_get_by_id(self, request: dict[str, Any]) -> dict[str, Any] | None:
        task = self.tasks.get(request["task"])
        return None if task is None else {"task": task}

    def _tasks_get_all(self, request: dict[str, Any]) -> dict[str, Any] | None:
        ids = request.get("id") or []
        return {"tasks": [self.tasks[id_] for id_ in ids if id_ in self.tasks]}

    def _tasks_edit(self, request: dict[str, Any]) -> dict[str, Any] | None:
        self.tasks[request.pop("task")].update(request)
        return {"updated": 1, "fields": {}}

    _tasks_update = _tasks_edit

    def _tasks_edit_hyper_params(self, request: dict[str, Any]) -> dict[str, Any] | None:
        sections = self.tasks[request["task"]]["hyperparams"]
        for item in request["hyperparams"]:
            sections.setdefault(item["section"], {})[item["name"]] = item
        return {"updated": 1}

    def _tasks_add_or_update_artifacts(self, request: dict[str, Any]) -> dict[str, Any] | None:
        kept = self.tasks[request["task"]]["execution"]["artifacts"]
        new = request["artifacts"]
        names = {artifact["key"] for artifact in new}
        kept[:] = [artifact for artifact in kept if artifact["key"] not in names] + new
        return {"updated": 1}

    def _status(self, request: dict[str, Any], status: str) -> dict[str, Any]:
        reason = {key: request.get(key) for key in ("status_reason", "status_message")}
        self.tasks[request["task"]].update(reason, status=status)
        return {"updated": 1, "fields": {}}

    def _tasks_started(self, request: dict[str, Any]) -> dict[str, Any] | None:
        return self._status(request, "in_progress")

    def _tasks_completed(self, request: dict[str, Any]) -> dict[str, Any] | None:
        return self._status(request, "completed")

    def _tasks_failed(self, request: dict[str, Any]) -> dict[str, Any] | None:
        return self._status(request, "failed")

    def _tasks_stopped(self, request: dict[str, Any]) -> dict[str, Any] | None:
        return self._status(request, "stopped")


def _parts(content_type: str, body: bytes) -> dict[str, bytes]:
    boundary = b"--" + content_type.partition("boundary=")[2].encode()
    files = {}
    for part in body.split(boundary)[1:-1]:
        head, _, content = part.partition(b"\r\n\r\n")
        name = head.partition(b'name="')[2].partition(b'"')[0].decode()
        files[name] = content.removesuffix(b"\r\n")
    return files


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ClearmlServer]:
    """A server on loopback, which the environment's variables name."""
    from clearml.backend_interface.base import InterfaceBase

    server = ClearmlServer()
    monkeypatch.setattr(InterfaceBase, "_default_session", None)
    for name in ("API", "WEB", "FILES"):
        monkeypatch.setenv(f"CLEARML_{name}_HOST", server.url)
    monkeypatch.setenv("CLEARML_API_ACCESS_KEY", "key")
    monkeypatch.setenv("CLEARML_API_SECRET_KEY", "secret")
    monkeypatch.delenv("CLEARML_OFFLINE_MODE", raising=False)
    yield server
    server.close()
