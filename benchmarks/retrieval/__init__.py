"""What the retriever costs, beside the way of the field's reference server; ``python -m benchmarks.retrieval``."""
