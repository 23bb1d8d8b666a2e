"""Finding passages: the corpus and the retrievers over it."""
