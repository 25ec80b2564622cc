"""What may be set, what is refused, and in which words."""

import pytest

from orbitkv.adapters.errors import AdapterError
from orbitkv.adapters.vllm.options import Options, read_options
from orbitkv.adapters.vllm.versions import check_version


def test_nothing_need_be_set():
    assert read_options({}) == Options()


def test_sizes_and_durations_are_written_as_everywhere_else():
    options = read_options(
        {"staging_bytes": "64MiB", "request_timeout": "250ms", "held_blocks_fraction": 0.5}
    )
    assert (options.staging_bytes, options.request_timeout) == (64 << 20, 0.25)


def test_an_unknown_option_is_refused_with_the_nearest_one():
    with pytest.raises(
        AdapterError, match=r'no option "on_mising_manager"(.|\n)*did you mean on_missing_manager'
    ):
        read_options({"on_mising_manager": "serve"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("on_missing_manager", "ignore"),
        ("socket", 7),
        ("page_blocks", 0),
        ("page_blocks", True),
        ("page_blocks", "2"),
        ("staging_bytes", "12 parsecs"),
        ("staging_bytes", 0),
        ("request_timeout", "0s"),
        ("request_timeout", -1),
        ("held_blocks_fraction", 1),
        ("held_blocks_fraction", "half"),
        ("allow_untested_version", "yes"),
    ],
)
def test_an_option_of_the_wrong_kind_is_refused_by_its_name(name, value):
    with pytest.raises(
        AdapterError, match=f'The option "{name}" in kv_connector_extra_config cannot be used'
    ):
        read_options({name: value})


@pytest.mark.parametrize("version", ["0.29.0", "0.29.0+cpu", "0.30.1", "0.32.0"])
def test_tested_releases_of_vllm_are_taken(version):
    check_version(version)


@pytest.mark.parametrize("version", ["0.28.0", "0.33.0", "1.0.0", "dev"])
def test_other_releases_are_refused_by_name_unless_asked_for(version):
    with pytest.raises(AdapterError, match=f"does not support vLLM {version}"):
        check_version(version)
    check_version(version, allow_untested=True)
