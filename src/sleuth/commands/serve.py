"""`sleuth serve`: an index over HTTP."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sleuth.commands.terminal import console
from sleuth.errors import UserError
from sleuth.retrieval.server.dialects import DIALECTS

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def serve(folder: Path, *, host: str, port: int, workers: int, k: int, dialect: str, settings: dict[str, Any]) -> None:
    """Serve until interrupted.

    Args:
        settings: of the search: reranker, reranked, probes, device.

    Raises:
        UserError: no index, a port that is taken, a wrong setting, or a library that is missing.
    """
    if dialect not in DIALECTS:
        raise UserError(f"--dialect {dialect} is not known; write {', '.join(DIALECTS)}")
    try:
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise UserError(f"serving needs {error.name}; pip install 'sleuth[serve]'") from None
    from sleuth.retrieval.server.app import TOKEN, ServerSettings
    from sleuth.retrieval.server.run import serve as run

    token = os.environ.get(TOKEN) or None
    notes = console(stderr=True)
    if host not in _LOOPBACK and token is None:
        notes.print(f"warning: anyone who reaches {host} can search this index; set {TOKEN} to ask for a token")
    threads = max(1, min(8, (os.cpu_count() or 1) // workers))
    server = ServerSettings(folder, settings, k, dialect, token=token, threads=threads)
    run(server, host=host, port=port, workers=workers, ready=lambda url: notes.print(f"serving {folder} at {url}"))
