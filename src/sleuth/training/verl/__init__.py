"""Sleuth on verl and Ray: objectives, agent loop and trainer as a plug-in, chosen by verl's own settings.

verl loads :mod:`sleuth.training.verl.plugin` while it is imported itself, in every process. So it is imported here,
before any module of this package: whichever of them Ray unpickles first, verl and the plug-in are there already.
"""

import verl  # noqa: F401
