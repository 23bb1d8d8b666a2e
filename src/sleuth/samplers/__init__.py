"""Who produces tokens: ids in, ids and log-probs out. :class:`~sleuth.types.Sampler` says what a sampler owes.

Nothing is imported here: ``sleuth.samplers.transformers`` needs transformers, ``sleuth.samplers.scripted`` nothing.
"""
