"""Starts the server: the socket first, then one process or several that share it."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sleuth.errors import UserError
from sleuth.retrieval.server.dialects import Limits

_SETTINGS = "SLEUTH_SERVE_SETTINGS"
_BACKLOG = 2048
_GRACE_SECONDS = 30


def serve(settings: Any, *, host: str, port: int, workers: int, ready: Callable[[str], None]) -> None:
    """Serve until a signal says to stop; requests that are being answered get their answer first.

    Args:
        settings: a :class:`sleuth.retrieval.server.app.ServerSettings`.
        port: 0 takes a free one.
        ready: told the address once the index is open and the socket bound.

    Raises:
        UserError: the port is taken, the index can't be opened, or a library is missing.
    """
    try:
        import uvicorn
    except ImportError:
        raise UserError("serving needs uvicorn; pip install 'sleuth[serve]'") from None
    options: dict[str, Any] = {
        "log_level": "warning",
        "access_log": False,
        "lifespan": "on",
        "timeout_graceful_shutdown": _GRACE_SECONDS,
        "timeout_keep_alive": 75,
        "server_header": False,
        "date_header": False,
    }
    if workers == 1:
        from sleuth.retrieval.server.app import RetrievalApp

        config = uvicorn.Config(RetrievalApp(settings), **options)
        bound = _bind(host, port)
        ready(_address(bound))
        uvicorn.Server(config).run([bound])
        return
    from sleuth.retrieval.index import open_index

    open_index(settings.folder, settings.settings)  # a wrong index is one line here, not a traceback of each worker
    bound = _bind(host, port)
    with tempfile.TemporaryDirectory() as counters:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = counters
        os.environ[_SETTINGS] = json.dumps({**asdict(settings), "folder": str(settings.folder)})
        ready(_address(bound))
        application = f"{__name__}:from_environment"
        uvicorn.run(application, factory=True, workers=workers, fd=bound.fileno(), **options)


def from_environment() -> Any:
    """The application of a worker process."""
    from sleuth.retrieval.server.app import RetrievalApp, ServerSettings

    said = json.loads(os.environ[_SETTINGS])
    return RetrievalApp(ServerSettings(**{**said, "folder": Path(said["folder"]), "limits": Limits(**said["limits"])}))


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(_BACKLOG)
    except OSError as error:
        bound.close()
        raise UserError(
            f"{host}:{port} can't be listened on ({error.strerror}); choose another --port or --host"
        ) from None
    bound.set_inheritable(True)
    return bound


def _address(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
