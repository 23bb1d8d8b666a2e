"""A user's own code by name: ``module:function``."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any

from sleuth.errors import UserError


def load_object(name: str) -> Any:
    """What ``module:attribute`` names, e.g. ``my_rewards:brevity`` or ``package.module:Class.method``.

    The current working directory is searched too, after the installed packages, and stays on the path so that the
    module may import its neighbours.

    Raises:
        UserError: not such a name, no such module or attribute, or the module raises while it is imported.
    """
    module_name, colon, attribute = name.partition(":")
    if not (colon and _is_dotted(module_name) and _is_dotted(attribute)):
        raise UserError(f'"{name}" is not a name of the form module:function (my_rewards:brevity, say)')
    module = _import(module_name, name)
    try:
        return reduce(getattr, attribute.split("."), module)
    except AttributeError:
        raise UserError(f"{name}: {module.__file__ or module_name} has no {attribute}; check the name") from None


def where_raised(error: BaseException) -> str:
    """``file:line`` of the innermost frame of ``error``, for a one-line message about a user's own code."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "unknown place"


def _is_dotted(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


def _import(module_name: str, name: str) -> ModuleType:
    folder = os.getcwd()
    if folder not in sys.path:
        # Last, so that a file called random.py or datasets.py there replaces nobody else's module.
        sys.path.append(folder)
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and f"{module_name}.".startswith(f"{error.name}."):
            message = f"{name}: no module {error.name} in {folder} or among the installed packages; check the name"
        else:
            message = f"{name}: {module_name} imports {error.name}, which is not installed ({where_raised(error)})"
        raise UserError(message) from None
    except (Exception, SystemExit) as error:
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        place = f"{error.filename}:{error.lineno}" if isinstance(error, SyntaxError) else where_raised(error)
        raise UserError(f"{name}: importing {module_name} raised {what} ({place})") from error
    _refuse_shadowed(module_name, module, Path(folder), name)
    return module


def _refuse_shadowed(module_name: str, module: ModuleType, folder: Path, name: str) -> None:
    """A file in the working directory that an installed module of the same name hides is not what the user meant."""
    top = module_name.partition(".")[0]
    own = [path for path in (folder / f"{top}.py", folder / top / "__init__.py") if path.exists()]
    loaded = getattr(sys.modules[top], "__file__", None)
    if own and loaded and Path(loaded).resolve() not in {path.resolve() for path in own}:
        raise UserError(f"{name}: {own[0]} is hidden by another module of that name, {loaded}; rename your file")
