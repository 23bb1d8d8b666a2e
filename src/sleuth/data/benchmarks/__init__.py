"""The field's benchmarks by name: which rows, from where, under which licence, and whether they are still the same.

>>> loaded = load_benchmark("hotpotqa")  # the cache, else the hub
>>> loaded = load_benchmark("nq", folder="FlashRAG_datasets")
>>> loaded.questions, loaded.provenance.as_dict()
"""

from sleuth.data.benchmarks.catalogue import BENCHMARKS, Benchmark, find_benchmark, is_benchmark
from sleuth.data.benchmarks.load import LoadedBenchmark, Provenance, load_benchmark, load_benchmarks
from sleuth.data.benchmarks.sealed import sealed_row

__all__ = [
    "BENCHMARKS",
    "Benchmark",
    "LoadedBenchmark",
    "Provenance",
    "find_benchmark",
    "is_benchmark",
    "load_benchmark",
    "load_benchmarks",
    "sealed_row",
]
