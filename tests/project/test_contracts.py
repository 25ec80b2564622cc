"""The arrows between packages: they hold, and no package is left out of them."""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMPOSITION = {"orbitkv.__main__", "orbitkv.serve", "orbitkv.config"}
"""Where everything meets: these may import whatever they put together."""


def test_imports_keep_the_contracts() -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_every_package_is_under_a_contract() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    sources = {name for contract in tool["contracts"] for name in contract["source_modules"]}
    modules = {
        f"orbitkv.{path.stem}"
        for path in (ROOT / "orbitkv").iterdir()
        if path.is_dir() or path.suffix == ".py"
    } - {"orbitkv.__init__", "orbitkv.__pycache__"}
    outside = {module for module in modules if not any(source.startswith(module) for source in sources)}
    assert outside <= COMPOSITION
