"""A stand-in for the model hub: the calls that huggingface_hub makes to create a repository and upload a folder.

Creation, the check of a card's metadata, how each file is to be sent, Git LFS's batch interface with its uploads and
verification, and commits as lines of JSON, after huggingface_hub 2.4's client. Small files come in the commit.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Hub:
    """Attributes: ``files`` of the repository, by path; ``created``: (owner, name, visibility); ``commits``: their
    titles; ``key`` that may write; ``refuse``: status by call (create, put, commit)."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.created: list[tuple[str, str, str | None]] = []
        self.commits: list[str] = []
        self.refuse: dict[str, int] = {}
        self.key = "hf_stand_in"
        self._objects: dict[str, bytes] = {}
        self._sizes: dict[str, int] = {}
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                hub._post(self, self.rfile.read(int(self.headers["content-length"])))

            def do_PUT(self) -> None:
                hub._put(self, self._body())

            def _body(self) -> bytes:
                if "content-length" in self.headers:
                    return self.rfile.read(int(self.headers["content-length"]))
                parts = []
                while size := int(self.rfile.readline(), 16):
                    parts.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return b"".join(parts)

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Hub:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _post(self, call: BaseHTTPRequestHandler, body: bytes) -> None:
        if call.headers.get("authorization") != f"Bearer {self.key}":
            _answer(call, 401, {"error": "Invalid username or password."})
        elif call.path == "/api/repos/create":
            self._create(call, json.loads(body))
        elif call.path == "/api/validate-yaml":
            _answer(call, 200, {"errors": [], "warnings": []})
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/(preupload|commit)/main", call.path):
            {"preupload": self._preupload, "commit": self._commit}[match[2]](call, body, match[1])
        elif call.path.endswith(".git/info/lfs/objects/batch"):
            self._batch(call, json.loads(body))
        elif call.path == "/verify":
            found = json.loads(body)
            whole = len(self._objects.get(found["oid"], b"")) == found["size"]
            _answer(call, 200 if whole else 404, {})
        else:
            _answer(call, 404, {"error": f"no such call: {call.path}"})

    def _create(self, call: BaseHTTPRequestHandler, wanted: dict[str, Any]) -> None:
        if "create" in self.refuse:
            _answer(call, self.refuse["create"], {"error": "refused"})
            return
        owner, name = wanted["organization"], wanted["name"]
        address = {"url": f"{self.url}/{owner}/{name}"}
        if any(made[:2] == (owner, name) for made in self.created):
            _answer(call, 409, {"error": "You already created this model repo", **address})
            return
        self.created.append((owner, name, wanted.get("visibility")))
        _answer(call, 200, address)

    def _preupload(self, call: BaseHTTPRequestHandler, body: bytes, name: str) -> None:
        files = json.loads(body)["files"]
        modes = [
            {
                "path": f["path"],
                "uploadMode": "lfs" if f["path"].endswith(".safetensors") else "regular",
                "shouldIgnore": False,
            }
            for f in files
        ]
        _answer(call, 200, {"files": modes})

    def _batch(self, call: BaseHTTPRequestHandler, wanted: dict[str, Any]) -> None:
        objects = []
        for item in wanted["objects"]:
            self._sizes[item["oid"]] = item["size"]
            actions = {"upload": {"href": f"{self.url}/put/{item['oid']}"}, "verify": {"href": f"{self.url}/verify"}}
            there = item["oid"] in self._objects
            objects.append({**item, **({} if there else {"actions": actions})})
        _answer(call, 200, {"transfer": "basic", "objects": objects})

    def _put(self, call: BaseHTTPRequestHandler, body: bytes) -> None:
        oid = call.path.removeprefix("/put/")
        whole = hashlib.sha256(body).hexdigest() == oid and len(body) == self._sizes[oid]
        if "put" in self.refuse or not whole:
            _answer(call, self.refuse.get("put", 422), {"error": "refused"})
            return
        self._objects[oid] = body
        _answer(call, 200, {})

    def _commit(self, call: BaseHTTPRequestHandler, body: bytes, name: str) -> None:
        if "commit" in self.refuse:
            _answer(call, self.refuse["commit"], {"error": "refused"})
            return
        for line in body.splitlines():
            item = json.loads(line)
            value = item["value"]
            if item["key"] == "header":
                self.commits.append(value["summary"])
            elif item["key"] == "file":
                self.files[value["path"]] = base64.b64decode(value["content"])
            elif item["key"] == "lfsFile":
                self.files[value["path"]] = self._objects[value["oid"]]
        number = f"{len(self.commits):040x}"
        _answer(call, 200, {"commitUrl": f"{self.url}/{name}/commit/{number}", "commitOid": number, "success": True})


def _answer(call: BaseHTTPRequestHandler, status: int, body: dict[str, Any]) -> None:
    data = json.dumps(body).encode()
    call.send_response(status)
    call.send_header("content-type", "application/json")
    call.send_header("content-length", str(len(data)))
    call.end_headers()
    call.wfile.write(data)
