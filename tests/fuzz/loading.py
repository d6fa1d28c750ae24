"""The fuzz targets, which lie beside the package and not in it."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

FUZZ = Path(__file__).parents[2] / "fuzz"


def load_targets() -> ModuleType:
    """Return the module of targets, imported once."""
    name = "eventlog_fuzz_targets"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, FUZZ / "targets.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]
