"""One setting at a time and several together: what is taken, what is refused, what the kernel is given."""

import re
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitkv.config.errors import Contradiction, Unfit
from orbitkv.config.settings import Config
from orbitkv.events.config import GIB, MIB, KernelConfig

ROOT = Path(__file__).parents[2]


def test_every_field_of_the_kernel_can_be_set() -> None:
    settings = {attribute.name for attribute in attrs.fields(Config)}
    fields = {field.name.removesuffix("_ns") for field in msgspec.structs.fields(KernelConfig)}
    assert fields - settings == set()


def test_defaults_are_those_of_the_kernel() -> None:
    kernel = Config(ssd_path=Path("/ssd")).kernel_config()
    own_defaults = KernelConfig(
        pool_bytes=4 * GIB,
        superblock_bytes=64 * MIB,
        query_budget_bytes=3 * GIB,
        instance_query_budget_bytes=3 * GIB,
        ssd_bytes=16 * GIB,
    )
    assert kernel == own_defaults


def test_the_kernel_gets_what_was_set() -> None:
    kernel = Config(
        pool_bytes=64 * MIB, lease_lifetime=0.1, operations_max=500, query_budget_fraction=0.5
    ).kernel_config()
    assert kernel.lease_lifetime_ns == 100_000_000
    assert kernel.operations_max == 500
    assert kernel.query_budget_bytes == kernel.instance_query_budget_bytes == 32 * MIB
    assert kernel.ssd_bytes == 0, "without ssd_path there is no SSD"


def test_the_ssd_is_whole_segments() -> None:
    kernel = Config(ssd_path=Path("/ssd"), ssd_bytes=700 * MIB).kernel_config()
    assert kernel.ssd_bytes == 512 * MIB
    assert Config(ssd_path=Path("/ssd"), ssd_bytes=0).kernel_config().ssd_bytes == 0


@pytest.mark.parametrize(
    ("pool_mib", "superblock_mib"),
    [(16, 16), (40, 20), (100, 20), (74, 18), (512, 32), (1024, 64), (4096, 64), (1 << 20, 64)],
)
def test_superblock_by_the_size_of_the_pool(pool_mib: int, superblock_mib: int) -> None:
    assert Config(pool_bytes=pool_mib * MIB).superblock_bytes == superblock_mib * MIB


@given(st.integers(8, 1 << 20).map(lambda huge_pages: huge_pages * 2 * MIB))
def test_little_of_any_pool_is_left_over(pool_bytes: int) -> None:
    config = Config(pool_bytes=pool_bytes)
    kernel = config.kernel_config()
    assert kernel.superblock_bytes % (2 * MIB) == 0
    assert kernel.pool_bytes % kernel.superblock_bytes == 0
    assert pool_bytes - kernel.pool_bytes < min(kernel.superblock_bytes, pool_bytes // 5)


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("pool_bytes", 3 * MIB, "multiple of 2MiB"),
        ("pool_bytes", 0, "between"),
        ("superblock_bytes", 3 * MIB, "multiple of 2MiB"),
        ("superblock_bytes", 2 * GIB, "between"),
        ("query_budget_fraction", 0.0, "share"),
        ("query_budget_fraction", 1.5, "share"),
        ("ssd_segment_bytes", 3 * MIB, "multiple of 2MiB"),
        ("ssd_inflight_bytes_max", 5000, "multiple of 4KiB"),
        ("operations_max", 0, "between 1"),
        ("sweep_interval", 0.0, "between 1ms"),
        ("shutdown_timeout", 601.0, "10m|601|between"),
        ("socket_path", Path("/" + "x" * 107), "107 bytes"),
        ("log_path", Path("/a\nb"), "control character"),
        ("http_listen", "127.0.0.1", "port"),
        ("http_listen", "127.0.0.1:99999", "port"),
        ("http_listen", "0.0.0.0:80", "loopback"),
        ("http_listen", "example.org:80", "IP address"),
    ],
)
def test_out_of_range(setting: str, value: object, told: str) -> None:
    values: dict[str, Any] = {setting: value}
    with pytest.raises(Unfit, match=told) as caught:
        Config(**values)
    assert caught.value.setting == setting


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"pool_bytes": 8 * MIB}, "pool_bytes"),
        ({"pool_bytes": 16 * MIB, "superblock_bytes": 32 * MIB}, "pool_bytes"),
        ({"pool_bytes": 16 * MIB, "query_budget_bytes": 17 * MIB}, "query_budget_bytes"),
        ({"instance_query_budget_bytes": 4 * GIB}, "instance_query_budget_bytes"),
        ({"operations_max": 100}, "operations_per_session_max"),
        ({"ssd_foreground_reserved_bytes": 33 * MIB}, "ssd_foreground_reserved_bytes"),
        ({"log_bytes_max": 100 * MIB}, "log_bytes_max"),
        ({"ssd_path": Path("/ssd"), "ssd_bytes": 255 * MIB}, "ssd_bytes"),
        ({"ssd_path": Path("/ssd"), "ssd_bytes": 65536 * GIB}, "ssd_bytes"),
    ],
)
def test_fine_alone_and_wrong_together(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(Contradiction) as caught:
        Config(**settings)
    assert [unfit.setting for unfit, _ in caught.value.found] == [named]


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("", None),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("localhost:80", ("127.0.0.1", 80)),
        ("[::1]:9470", ("::1", 9470)),
    ],
)
def test_http_address(listen: str, address: tuple[str, int] | None) -> None:
    assert Config(http_listen=listen).http_address == address


def test_every_setting_has_an_effect() -> None:
    """It reaches the kernel, or the composition root uses it."""
    fields = {field.name.removesuffix("_ns") for field in msgspec.structs.fields(KernelConfig)}
    sources = [path.read_text() for path in (ROOT / "orbitkv" / "serve").glob("*.py")]
    used = set(re.findall(r"\bconfig\.(\w+)", "".join(sources)))
    behind_others = {"query_budget_fraction", "http_listen"}
    for attribute in attrs.fields(Config):
        assert attribute.name in fields | used | behind_others


def test_every_setting_is_told_in_a_sentence() -> None:
    for attribute in attrs.fields(Config):
        doc = attribute.metadata["doc"]
        assert doc[0].isupper() or doc.startswith("O_DIRECT")
        assert len(doc.split()) >= 4, attribute.name
        assert doc.endswith("."), attribute.name
