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
        self._of: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        self.passages = Gauge("sleuth_passages", "Passages in the index.", registry=own, multiprocess_mode="max")

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Count a request."""
        if (path, status) not in self._of:  # looking a label up takes longer than counting
            self._of[path, status] = self.requests.labels(path, status), self.seconds.labels(path)
        count, histogram = self._of[path, status]
        count.inc()
        histogram.observe(seconds)

    def text(self) -> bytes:
        from prometheus_client import generate_latest

        return generate_latest(self._registry)
