"""What tells a model's weights from others: its files where they can be read, else what is known of them.

A folder's name says nothing: retrained weights stand in the same place. The fingerprint is over names,
sizes and samples of the weight files and the whole of their descriptions. Samples are enough to tell
weights that were trained apart, which differ everywhere; they are no proof against somebody's malice.
"""

import hashlib
import importlib
from pathlib import Path
from typing import Any, Final

from orbitkv.adapters.namespace import UNKNOWN

WEIGHT_FILES: Final = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf")
DESCRIPTIONS: Final = ("config.json", "*.safetensors.index.json", "quantize_config.json")
SAMPLES: Final = 16
SAMPLE_BYTES: Final = 64 << 10
_SNAPSHOTS = "snapshots"


def local_place(model: str, revision: str | None, cache: str | None) -> str:
    """Where the files of a model lie that was named as on the hub; the name itself where that is not known.

    `cache`: the folder of the hub's cache, if it is not the usual one.
    """
    if Path(model).exists():
        return model
    try:
        hub: Any = importlib.import_module("huggingface_hub")
        found = hub.try_to_load_from_cache(model, "config.json", cache_dir=cache, revision=revision)
    except (ImportError, ValueError):
        return model
    return str(Path(found).parent) if isinstance(found, str) else model


def fingerprint(model: str) -> str:
    """Of the weights in the folder or file `model`, or UNKNOWN when there are none."""
    folder = Path(model)
    weights = [folder] if folder.is_file() else _matching(folder, WEIGHT_FILES)
    if not weights:
        return UNKNOWN
    digest = hashlib.sha256()
    for path in _matching(folder, DESCRIPTIONS):
        _add(digest, path.name.encode())
        _add(digest, path.read_bytes())
    for path in weights:
        _add(digest, path.name.encode())
        _add_samples(digest, path)
    return f"sha256-samples:{digest.hexdigest()}"


def model_name(model: str) -> str:
    """A name for people. Where a folder stands is no part of it: its files are told by the fingerprint."""
    if not Path(model).exists():
        return model
    parts = Path(model).absolute().parts
    if len(parts) >= 3 and parts[-2] == _SNAPSHOTS:
        return parts[-3].removeprefix("models--").replace("--", "/")
    return parts[-1]


def revision(model: str, configured: str | None) -> str:
    """The commit of a hub's snapshot folder, else what was configured."""
    parts = Path(model).parts
    if len(parts) >= 2 and parts[-2] == _SNAPSHOTS:
        return parts[-1]
    return configured or UNKNOWN


def _matching(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    return sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})


def _add(digest: "hashlib._Hash", data: bytes) -> None:
    digest.update(len(data).to_bytes(8, "little"))
    digest.update(data)


def _add_samples(digest: "hashlib._Hash", path: Path) -> None:
    size = path.stat().st_size
    _add(digest, size.to_bytes(8, "little"))
    step = max(1, (size - SAMPLE_BYTES) // max(1, SAMPLES - 1))
    with path.open("rb") as file:
        for offset in range(0, size, max(step, SAMPLE_BYTES)):
            file.seek(offset)
            _add(digest, file.read(SAMPLE_BYTES))
