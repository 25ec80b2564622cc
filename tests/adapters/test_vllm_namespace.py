"""Whatever changes the bytes of a page changes the namespace; what does not, does not."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orbitkv.adapters.errors import AdapterError
from orbitkv.adapters.vllm.groups import boundary_tokens, read_groups
from orbitkv.adapters.vllm.namespace import hash_depends_on_process, namespace_of
from orbitkv.adapters.vllm.options import Options
from orbitkv.adapters.vllm.weights import fingerprint, model_name, revision


class FullAttentionSpec(SimpleNamespace):
    pass


class MLAAttentionSpec(FullAttentionSpec):
    pass


class SlidingWindowSpec(SimpleNamespace):
    pass


class MambaSpec(SimpleNamespace):
    pass


class UniformTypeKVCacheSpecs(SimpleNamespace):
    pass


def full(**changes: Any) -> FullAttentionSpec:
    fields = {"block_size": 16, "num_kv_heads": 8, "head_size": 128, "dtype": "bfloat16"}
    return FullAttentionSpec(**fields | changes)


def kv_config(*specs: Any, layout: str = "LBHNC") -> Any:
    groups = [
        SimpleNamespace(layer_names=[f"layer {n}"], kv_cache_spec=spec, is_eagle_group=False)
        for n, spec in enumerate(specs)
    ]
    return SimpleNamespace(kv_cache_groups=groups, kv_cache_layout=layout, num_blocks=64)


class Model(SimpleNamespace):
    def get_total_num_hidden_layers(self) -> int:
        return self.layers

    def get_total_num_kv_heads(self) -> int:
        return 8

    def get_head_size(self) -> int:
        return 128


def vllm_config(model_folder: Path, **changes: Any) -> Any:
    model = {"model": str(model_folder), "revision": None, "dtype": "bfloat16", "layers": 36, "seed": 0}
    model |= {"max_model_len": 4096, "quantization": None, "hf_overrides": {}, "hf_text_config": None}
    parts = {
        "model_config": Model(**model),
        "cache_config": SimpleNamespace(prefix_caching_hash_algo="sha256"),
        "parallel_config": SimpleNamespace(tensor_parallel_size=1, pipeline_parallel_size=1),
        "load_config": SimpleNamespace(load_format="auto"),
        "device_config": SimpleNamespace(device_type="cuda"),
        "speculative_config": None,
    }
    for path, value in changes.items():
        part, _, name = path.partition("__")
        if name:
            setattr(parts[part], name, value)
        else:
            parts[part] = value
    return SimpleNamespace(**parts)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(bytes(range(256)) * 8192)
    return tmp_path


def digest(config: Any, kv: Any = None, options: Options | None = None, version: str = "0.29.0") -> bytes:
    kv = kv or kv_config(full())
    options = options or Options()
    groups = read_groups(kv, options.page_blocks)
    return namespace_of(config, kv, groups, options, version).digest


def test_the_same_engine_has_the_same_namespace(folder):
    assert digest(vllm_config(folder)) == digest(vllm_config(folder, model_config__max_model_len=9999))


@pytest.mark.parametrize(
    "change",
    [
        {"model_config__revision": "abc"},
        {"model_config__dtype": "float16"},
        {"model_config__layers": 35},
        {"model_config__quantization": "awq"},
        {"model_config__hf_overrides": {"rope": 2}},
        {"cache_config__prefix_caching_hash_algo": "sha256_cbor"},
        {"parallel_config__tensor_parallel_size": 2},
        {"parallel_config__pipeline_parallel_size": 2},
        {"load_config__load_format": "dummy"},
        {"device_config__device_type": "cpu"},
        {"speculative_config": SimpleNamespace(method="eagle", model="draft")},
    ],
)
def test_any_difference_of_the_engine_is_another_namespace(folder, change):
    assert digest(vllm_config(folder)) != digest(vllm_config(folder, **change))


@pytest.mark.parametrize(
    "spec", [full(dtype="float8"), full(num_kv_heads=4), full(head_size=64), full(block_size=32)]
)
def test_any_difference_of_the_memory_is_another_namespace(folder, spec):
    assert digest(vllm_config(folder)) != digest(vllm_config(folder), kv_config(spec))


def test_layout_tenant_page_and_release_are_part_of_it(folder):
    config = vllm_config(folder)
    assert (
        len(
            {
                digest(config),
                digest(config, kv_config(full(), layout="LBNHC")),
                digest(config, options=Options(tenant="other")),
                digest(config, options=Options(page_blocks=2)),
                digest(config, options=Options(weights_fingerprint="mine")),
                digest(config, version="0.32.0"),
            }
        )
        == 6
    )


def test_other_weights_in_the_same_folder_are_another_namespace(folder):
    before = digest(vllm_config(folder))
    weights = folder / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[len(data) // 2] ^= 1
    data = bytearray(b ^ 1 for b in data)  # trained further: different everywhere
    weights.write_bytes(data)
    assert digest(vllm_config(folder)) != before


def test_the_same_weights_in_another_place_are_the_same(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("elsewhere") / folder.name
    other.mkdir()
    for file in folder.iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    assert digest(vllm_config(folder)) == digest(vllm_config(other))


def test_a_rotary_embedding_that_depends_on_the_longest_context_counts_it(folder):
    long = SimpleNamespace(rope_parameters={"rope_type": "longrope"})
    short = [
        digest(vllm_config(folder, model_config__hf_text_config=long, model_config__max_model_len=n))
        for n in (4096, 131072)
    ]
    assert short[0] != short[1]


def test_what_is_no_folder_has_no_fingerprint(tmp_path):
    assert fingerprint("org/model") == "unknown" == fingerprint(str(tmp_path))


def test_a_model_of_one_file_has_a_fingerprint_of_its_own(tmp_path):
    files = [tmp_path / name for name in ("a.gguf", "b.gguf")]
    for number, file in enumerate(files):
        file.write_bytes(bytes([number]) * 100_000)
    assert len({fingerprint(str(file)) for file in files} | {"unknown"}) == 3


def test_a_model_named_as_on_the_hub_is_told_by_what_lies_in_its_cache(folder, monkeypatch):
    """Its name is that of whatever was newest when it was loaded."""
    snapshots = []
    for number, commit in enumerate(("aaaa", "bbbb")):
        snapshot = folder / "models--org--name" / "snapshots" / commit
        snapshot.mkdir(parents=True)
        (snapshot / "model.safetensors").write_bytes(bytes([number]) * 100_000)
        snapshots.append(snapshot)
    hub = SimpleNamespace(try_to_load_from_cache=lambda *a, **k: str(snapshots[0] / "config.json"))
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    config = vllm_config(Path("org/name"))
    before = digest(config)
    hub.try_to_load_from_cache = lambda *a, **k: str(snapshots[1] / "config.json")
    assert digest(config) != before
    hub.try_to_load_from_cache = lambda *a, **k: None
    assert digest(config) == digest(vllm_config(Path("org/name")))


def test_a_snapshot_of_a_hub_is_told_by_name_and_commit(tmp_path):
    snapshot = tmp_path / "models--org--name" / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    assert model_name(str(snapshot)) == "org/name"
    assert revision(str(snapshot), "main") == "0123abcd"


@pytest.mark.parametrize(
    ("algorithm", "seed", "depends"),
    [
        ("sha256", None, False),
        ("sha256_cbor", None, False),
        ("xxhash", None, True),
        ("xxhash_cbor", "0", False),
    ],
)
def test_hashes_that_differ_from_process_to_process_are_told(folder, algorithm, seed, depends):
    config = vllm_config(folder, cache_config__prefix_caching_hash_algo=algorithm)
    assert hash_depends_on_process(config, seed) is depends


class TestGroups:
    def test_a_sliding_window_needs_the_pages_that_vllm_would_look_for(self):
        window = SlidingWindowSpec(block_size=16, num_kv_heads=1, head_size=8, dtype="f", sliding_window=33)
        groups = read_groups(kv_config(full(), window), 1)
        assert [group.trailing_pages for group in groups] == [0, 2]

    def test_a_prefix_ends_where_pages_of_all_groups_end(self):
        groups = read_groups(kv_config(full(block_size=16), full(block_size=48)), 2)
        assert boundary_tokens(groups) == 96

    def test_latent_attention_is_the_same_on_every_rank(self):
        (group,) = read_groups(kv_config(MLAAttentionSpec(**vars(full()))), 1)
        assert group.same_on_every_rank

    def test_layers_of_several_sizes_are_one_group(self):
        uniform = UniformTypeKVCacheSpecs(
            block_size=16, kv_cache_specs={"a": full(), "b": full(head_size=64)}
        )
        (group,) = read_groups(kv_config(uniform), 1)
        assert group.page_tokens == 16

    @pytest.mark.parametrize(
        "spec",
        [
            MambaSpec(block_size=16),
            UniformTypeKVCacheSpecs(
                block_size=16, kv_cache_specs={"a": full(), "b": SlidingWindowSpec(sliding_window=8)}
            ),
        ],
    )
    def test_other_kinds_are_refused_by_name(self, spec):
        with pytest.raises(AdapterError, match=r"not supported: .*(MambaSpec|SlidingWindowSpec)"):
            read_groups(kv_config(spec), 1)
