"""Figures that papers and repositories print, as data with sources: read, checked for sums, shown beside own scores."""

from sleuth.evaluation.published.figures import Figure, Source, figures, flags, sources

__all__ = ["Figure", "Source", "figures", "flags", "sources"]
