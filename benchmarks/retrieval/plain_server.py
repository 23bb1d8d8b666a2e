"""The reference way of serving, written from its description: FastAPI, pydantic models, each request its own search.

It searches with the very same index as ours, so that what differs is the serving alone. Its route is a plain function,
which FastAPI runs in its pool of threads. ``--as-installed`` gives what ``pip install fastapi uvicorn`` gives: h11 on
asyncio's loop, a line of log for each request. Without it the server has our HTTP parser and loop, and no log.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from sleuth.retrieval.corpus import joined_contents
from sleuth.retrieval.index import IndexRetriever, open_index
from sleuth.types import SearchRequest


class Query(BaseModel):
    """Body of a request."""

    queries: list[str]
    topk: int | None = None
    return_scores: bool = False


def application(index: IndexRetriever) -> FastAPI:
    """One route: a batch in, a batch out."""
    app = FastAPI()

    @app.post("/retrieve")
    def retrieve(request: Query) -> Any:
        results = index.search([SearchRequest(query) for query in request.queries], request.topk or 3)
        return {
            "result": [
                [{"document": {"id": d.id, "contents": joined_contents(d)}, "score": d.score} for d in result.documents]
                for result in results
            ]
        }

    return app


def main() -> None:
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    app = application(open_index(Path(sys.argv[1])))
    print(f"at http://127.0.0.1:{bound.getsockname()[1]}", file=sys.stderr, flush=True)
    installed = "--as-installed" in sys.argv
    config = uvicorn.Config(app, http="h11", loop="asyncio") if installed else uvicorn.Config(app, log_level="warning")
    uvicorn.Server(config).run([bound])


if __name__ == "__main__":
    main()
