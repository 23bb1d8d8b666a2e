"""SkyRL's registries without its trainer, which wants CUDA, vLLM and flash-attn."""

import sys
import types
from importlib.util import find_spec
from pathlib import Path

SPEC = find_spec("skyrl")
if SPEC is not None and sys.version_info < (3, 12):
    # SkyRL 0.3 is said to run on Python 3.11, but pydantic refuses a TypedDict that this package's __init__ imports.
    backends = types.ModuleType("skyrl.backends")
    backends.__path__ = [str(Path(SPEC.submodule_search_locations[0]) / "backends")]
    sys.modules["skyrl.backends"] = backends
