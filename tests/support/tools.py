"""Scripts of `tools/` as modules."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from support.paths import ROOT


def load_tool(name: str) -> ModuleType:
    """The script `tools/NAME.py`, imported but not run."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
