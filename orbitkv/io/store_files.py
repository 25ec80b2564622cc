"""What stands in the store's directory, opened and closed together: lock, page file, directory of slots."""

from pathlib import Path

from orbitkv.io.directory import Directory
from orbitkv.io.errors import StoreError
from orbitkv.io.page_file import PageFile
from orbitkv.io.probe import IoChoice, choose_io
from orbitkv.io.store_geometry import StoreGeometry
from orbitkv.io.store_path import StoreClaim, path_trouble

PAGES_NAME = "pages"
DIRECTORY_NAME = "directory"


class StoreFiles:
    """Raises StoreError when the path or a setting cannot be used, and has then left nothing open."""

    def __init__(self, path: Path, geometry: StoreGeometry, *, io_engine: str, io_direct: str) -> None:
        self.path = path
        self.geometry = geometry
        self._claim = StoreClaim(path)
        try:
            self.choice: IoChoice = choose_io(path, io_engine, io_direct)
            self._open(path)
        except BaseException:
            self._claim.close()
            raise

    def format_segment(self, segment: int, slot_bytes: int) -> None:
        """Disk blocks first: a segment without space keeps what it had. Raises OSError."""
        end = (segment + 1) * self.geometry.segment_bytes
        if not self.directory.is_formatted(segment) or self.page_file.size_bytes < end:
            self.page_file.allocate_segment(segment)
        self.directory.format_segment(segment, slot_bytes)

    def sync(self) -> None:
        """Data before the directory: what the directory names must be there. Raises OSError."""
        self.page_file.sync()
        self.directory.sync()

    def close(self) -> None:
        self.directory.close()
        self.page_file.close()
        self._claim.close()

    def _open(self, path: Path) -> None:
        pages, directory = path / PAGES_NAME, path / DIRECTORY_NAME
        try:
            if not pages.exists():
                directory.unlink(missing_ok=True)
            self.directory = Directory(directory, self.geometry)
            try:
                keep = not self.directory.reset_reason
                self.page_file = PageFile(pages, self.geometry, direct=self.choice.direct, keep=keep)
            except BaseException:
                self.directory.close()
                raise
        except OSError as refused:
            raise StoreError(f"the SSD path {path} {path_trouble(refused)}") from None
