"""What Prometheus reads at ``/metrics``."""

from __future__ import annotations

import os
from typing import Any

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """Counters and histograms of one server; with several workers those of all of them."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
        from prometheus_client.multiprocess import MultiProcessCollector

        self._registry = CollectorRegistry()
        own: Any = self._registry
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            own = None
            MultiProcessCollector(self._registry)
        self.requests = Counter("sleuth_requests_total", "Requests answered.", ["path", "status"], registry=own)
        self.seconds = Histogram("sleuth_request_seconds", "Time to answer.", ["path"], buckets=_SECONDS, registry=own)
        self.queries = Counter("sleuth_queries_total", "Queries searched.", registry=own)
        self.empty = Counter("sleuth_empty_results_total", "Queries that found nothing.", registry=own)
        self.batch = Histogram("sleuth_batch_queries", "Queries the engine got at once.", buckets=_SIZES, registry=own)
        self.waiting = Gauge(
            "sleuth_waiting_queries", "Queries that wait for the engine.", registry=own, multiprocess_mode="livesum"
        )
        self.passages = Gauge("sleuth_passages", "Passages in the index.", registry=own, multiprocess_mode="max")

    def text(self) -> bytes:
        from prometheus_client import generate_latest

        return generate_latest(self._registry)
