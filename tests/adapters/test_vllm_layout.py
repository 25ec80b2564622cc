"""vLLM's KV tensors as planes of bytes, in the layouts it has, and their names at the manager."""

from itertools import pairwise
from typing import Any

import attrs
import pytest

from orbitkv.adapters.errors import AdapterError
from orbitkv.adapters.vllm.layout import Ranks, read_layout
from orbitkv.events.geometry import SliceGeometry
from orbitkv.io.wire import SLICE_CHARS_MAX
from tests.adapters.vllm_standins import GROUP

torch = pytest.importorskip("torch", reason="torch comes with an engine")

LAYERS, BLOCKS, HEADS, TOKENS, CONTENT = 2, 5, 2, 4, 6
ALONE = Ranks(rank=0, world_size=1, tensor_parallel=1, pipeline_parallel=1)
NAMES = tuple(f"layer {n}" for n in range(LAYERS))
TWO_LAYERS = attrs.evolve(GROUP, layers=NAMES)


def tensors(order: str) -> dict[str, Any]:
    """One view [B, H, N, C] a layer on memory whose axes are in this order, every element another."""
    sizes = dict(zip("LBHNC", (LAYERS, BLOCKS, HEADS, TOKENS, CONTENT), strict=True))
    memory = torch.arange(LAYERS * BLOCKS * HEADS * TOKENS * CONTENT, dtype=torch.int16)
    shaped = memory.reshape([sizes[axis] for axis in order])
    logical = shaped.permute([order.index(axis) for axis in "LBHNC"])
    return dict(zip(NAMES, logical, strict=True))


def planes(kv: dict[str, Any], layout: str = "", blocks: int = BLOCKS) -> list[Any]:
    (found,) = read_layout([TWO_LAYERS], kv, blocks, layout, ALONE, "TEST")
    return found.planes


@pytest.mark.parametrize("order", ["LBHNC", "LBNHC", "BLHNC", "BLNHC"])
def test_a_row_holds_the_bytes_of_one_block_of_one_layer(order):
    kv = tensors(order)
    for plane, tensor in zip(planes(kv, order), kv.values(), strict=True):
        assert plane.shape == (BLOCKS, HEADS * TOKENS * CONTENT * 2)
        for block in range(BLOCKS):
            elements = plane[block].clone().view(torch.int16).tolist()
            assert sorted(elements) == sorted(tensor[block].flatten().tolist())
            assert all(
                later == earlier + 1 for earlier, later in pairwise(elements)
            )  # as they stand in memory


def test_writing_a_row_writes_the_block():
    kv = tensors("BLNHC")
    planes(kv)[1][3].zero_()
    assert kv[NAMES[1]][3].abs().sum() == 0
    assert kv[NAMES[0]][3].abs().sum() > 0 and kv[NAMES[1]][2].abs().sum() > 0


def test_kernel_blocks_are_rows_together():
    kv = {name: tensor.contiguous().reshape(BLOCKS * 2, HEADS, TOKENS // 2, CONTENT)
          for name, tensor in tensors("LBHNC").items()}  # fmt: skip
    assert planes(kv)[0].shape == (BLOCKS, HEADS * TOKENS * CONTENT * 2)


@pytest.mark.parametrize("order", ["LHBNC", "BHLNC"])
def test_a_layout_that_scatters_a_block_is_refused_by_name(order):
    with pytest.raises(AdapterError, match=f"The KV layout {order} of layer layer 0 is not supported"):
        planes(tensors(order), order)


def test_what_is_no_tensor_is_refused_by_name():
    with pytest.raises(AdapterError, match="it is a list, not one tensor"):
        planes({NAMES[0]: [], NAMES[1]: []})


class TestNames:
    def slice(self, *, rank: int = 0, tp: int = 1, layout: str = "LBNHC", backend: str = "A", **group: Any):
        ranks = Ranks(rank=rank, world_size=tp, tensor_parallel=tp, pipeline_parallel=1)
        changed = attrs.evolve(TWO_LAYERS, **group)
        (found,) = read_layout([changed], tensors("LBNHC"), BLOCKS, layout, ranks, backend)
        (made,) = found.geometry().slices
        return made

    def test_a_page_has_all_layers_of_its_blocks(self):
        assert self.slice(page_blocks=3).payload_bytes == 3 * LAYERS * HEADS * TOKENS * CONTENT * 2

    def test_whatever_a_rank_alone_knows_of_its_bytes_is_in_the_name(self):
        names = {
            self.slice().slice,
            self.slice(layout="LBHNC").slice,
            self.slice(backend="B").slice,
            self.slice(spec="other").slice,
            self.slice(tp=2).slice,
            self.slice(rank=1, tp=2).slice,
        }
        assert len(names) == 6

    def test_ranks_that_hold_the_same_bytes_share_a_name(self):
        made = [self.slice(rank=rank, tp=2, same_on_every_rank=True) for rank in range(2)]
        assert made[0] == made[1] == SliceGeometry(made[0].slice, made[0].payload_bytes, True)

    def test_a_long_name_keeps_what_tells_it_apart(self):
        long = [self.slice(backend="x" * 500 + end).slice for end in "ab"]
        assert long[0] != long[1] and max(map(len, long)) <= SLICE_CHARS_MAX

    def test_a_rank_without_a_layer_holds_no_slice(self):
        (found,) = read_layout([TWO_LAYERS], {}, BLOCKS, "LBNHC", ALONE, "A")
        assert found.geometry().slices == ()
