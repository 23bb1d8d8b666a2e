"""Evidence anchors: for each question the places that prove its answer, for a teacher to read (arXiv 2608.12764)."""
