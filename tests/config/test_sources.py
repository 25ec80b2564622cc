"""Defaults < file < environment < flags; unknown names and bad values are told with what mends them."""

from pathlib import Path

import pytest

from orbitkv.config import ConfigError, load, render
from orbitkv.events.config import GIB, MIB


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    return tmp_path / "orbitkv.toml"


def told(**sources: object) -> str:
    with pytest.raises(ConfigError) as caught:
        load(**sources)  # type: ignore[arg-type]  # the tests give wrong things on purpose
    for problem in caught.value.problems:
        assert all((problem.what, problem.why, problem.remedy))
    return str(caught.value)


def test_later_sources_win_and_are_named(toml: Path) -> None:
    toml.write_text('pool_bytes = "1GiB"\nssd_bytes = "1GiB"\nsessions_max = 7\n')
    loaded = load(
        toml,
        {"ORBITKV_POOL_BYTES": "2GiB", "ORBITKV_SSD_BYTES": "2GiB", "HOME": "/h"},
        {"pool_bytes": "3GiB"},
    )
    config = loaded.config
    assert (config.pool_bytes, config.ssd_bytes, config.sessions_max) == (3 * GIB, 2 * GIB, 7)
    assert loaded.origins["pool_bytes"] == "flag --pool-bytes"
    assert loaded.origins["ssd_bytes"] == "environment ORBITKV_SSD_BYTES"
    assert loaded.origins["sessions_max"] == f"file {toml}"
    assert loaded.origins["operations_max"] == "default"
    assert loaded.origins["superblock_bytes"] == "default (auto)"


def test_auto_undoes_what_a_weaker_source_said(toml: Path) -> None:
    toml.write_text('superblock_bytes = "2MiB"\n')
    loaded = load(toml, {"ORBITKV_SUPERBLOCK_BYTES": "auto"})
    assert loaded.config.superblock_bytes == 64 * MIB
    assert loaded.origins["superblock_bytes"] == "default (auto)"


def test_the_file_may_be_named_by_the_environment(toml: Path) -> None:
    toml.write_text("sessions_max = 7\n")
    assert load(environment={"ORBITKV_CONFIG": str(toml)}).config.sessions_max == 7


def test_switches_of_the_engine_are_let_pass() -> None:
    environment = {
        "ORBITKV_QUEUE_WARMUP": "1",
        "ORBITKV_TEST_TRACE": "x",
        "ORBITKV_TRACE_TRANSFERS": "1",
    }
    assert load(environment=environment).config.trace_transfers


def test_unknown_names_are_refused_with_the_nearest(toml: Path) -> None:
    toml.write_text("pool_byte = 1\n[log]\nbytes = 1\n")
    text = told(file=toml, environment={"ORBITKV_SESSION_MAX": "1"})
    assert "did you mean pool_bytes?" in text
    assert f'There is no setting "log" (in {toml})' in text
    assert "did you mean ORBITKV_SESSIONS_MAX?" in text


def test_all_mistakes_are_told_at_once_with_their_origin(toml: Path) -> None:
    toml.write_text(
        'io_engine = "iouring"\npool_bytes = true\nquery_keys_max = 1.5\nquery_budget_fraction = nan\n'
    )
    text = told(
        file=toml, environment={"ORBITKV_DEMAND_PREFIX_CUT": "maybe"}, flags={"sweep_interval": "9 years"}
    )
    assert f'io_engine = "iouring" (file {toml}) cannot be used.' in text
    assert 'did you mean "io_uring"' in text
    assert f"pool_bytes = true (file {toml})" in text
    assert f"query_budget_fraction = nan (file {toml})" in text
    assert f"query_keys_max = 1.5 (file {toml})" in text
    assert 'demand_prefix_cut = "maybe" (environment ORBITKV_DEMAND_PREFIX_CUT)' in text
    assert 'sweep_interval = "9 years" (flag --sweep-interval)' in text


def test_a_pool_below_one_superblock_is_told_with_both_names() -> None:
    text = told(flags={"pool_bytes": "8MiB"})
    assert 'pool_bytes = "8MiB" (flag --pool-bytes) cannot be used' in text
    assert "superblock_bytes is 16MiB" in text
    assert "set pool_bytes to at least 16MiB" in text


@pytest.mark.parametrize("content", [b"pool_bytes = \n", b"\xff\xfe", b"a = 1\na = 2\n"])
def test_a_file_that_is_no_toml(toml: Path, content: bytes) -> None:
    toml.write_bytes(content)
    assert "is not TOML" in told(file=toml)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    assert "No such file" in told(file=tmp_path / "missing.toml")
    assert "Is a directory" in told(file=tmp_path)


def test_empty_paths() -> None:
    assert load(environment={"ORBITKV_SSD_PATH": ""}).config.ssd_path is None
    assert "path is empty" in told(environment={"ORBITKV_LOG_PATH": ""})


def test_what_is_printed_can_be_used_as_a_file(toml: Path) -> None:
    flags = {
        "pool_bytes": "1.5GiB",
        "ssd_path": 'dir with "quotes" and \\ and ü',
        "lease_lifetime": "90s",
        "query_budget_fraction": "0.3",
        "demand_prefix_cut": True,
        "http_listen": "",
        "log_sync_interval": 0,
    }
    first = load(flags=flags)
    toml.write_text(render(first.config, first.origins))
    again = load(toml)
    assert again.config == first.config
    assert set(again.origins.values()) == {f"file {toml}"}
    assert 'lease_lifetime = "90s"  # flag --lease-lifetime' in render(first.config, first.origins)
