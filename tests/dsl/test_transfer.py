"""What a sync sends: bytes and seconds worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from agym.dsl.catalog import Catalog
from agym.dsl.model.algorithm import Algorithm, Preset
from agym.dsl.model.model_sizes import find_shape
from agym.dsl.model.plan import Transfer
from agym.dsl.model.recipe import DType, Gpu, Hardware, Layout, Lora, Recipe
from agym.dsl.planning.lower import lower

Change = Callable[..., Any]
TransferOf = Callable[[dict[str, Any]], Transfer | None]

SEVEN = {"model.path": "Qwen/Qwen2.5-7B", "model.dtype": DType.BF16}
SIZE = 15_231_233_024
LINK = SIZE / (0.8 * 64e9)
NETWORK = SIZE / 1.25e9


@pytest.fixture
def transfer_of(change: Change, recipe: Recipe, catalog: Catalog) -> TransferOf:
    def estimate(changes: dict[str, Any]) -> Transfer | None:
        made = change(recipe, SEVEN | changes)
        return lower(made, find_shape(made.model), (), "0" * 64, catalog).budget.transfer

    return estimate


def h100s(nodes: int, **changes: Any) -> dict[str, Any]:
    return {"hardware": Hardware(nodes=nodes, gpus_per_node=8, gpu=Gpu.H100, **changes)}


@pytest.mark.parametrize(
    ("changes", "samplers", "nodes", "seconds"),
    [
        (h100s(1), 8, 1, 2 * LINK),  # to the host and back
        (h100s(2), 16, 2, 2 * LINK + NETWORK),
        (h100s(1) | {"hardware.train.zero": 3}, 8, 1, 3 * LINK),  # made whole first
        (h100s(2) | {"hardware.train.zero": 3}, 16, 2, 2 * LINK + 2 * NETWORK),
        (h100s(2, network_gb_per_s=12.5), 16, 2, 2 * LINK + NETWORK / 10),
        # eight learn on the first node, eight sample on the second
        (h100s(2, layout=Layout.SPLIT), 8, 1, 2 * LINK + NETWORK),
        ({"hardware": Hardware(gpus_per_node=8)}, 8, 1, None),
    ],
)
def test_weights_go_by_the_host_and_once_to_each_other_node(
    transfer_of: TransferOf, changes: dict[str, Any], samplers: int, nodes: int, seconds: float | None
) -> None:
    found = transfer_of(changes)
    assert found is not None
    assert (found.bytes, found.samplers, found.nodes) == (SIZE, samplers, nodes)
    assert found.seconds == (None if seconds is None else pytest.approx(seconds))


def test_adapters_are_all_that_is_sent(transfer_of: TransferOf) -> None:
    found = transfer_of(h100s(1) | {"model.lora": Lora(rank=64, targets=("q_proj",))})
    assert found is not None
    assert found.bytes == 28 * 64 * (3584 + 3584) * 2


def test_a_tied_output_layer_is_written_out(transfer_of: TransferOf) -> None:
    found = transfer_of({"model.path": "Qwen/Qwen2.5-0.5B", "model.dtype": DType.FP32})
    assert found == Transfer(bytes=4 * (494_032_768 + 151_936 * 896), samplers=1, nodes=1, seconds=None)


def test_nothing_is_sent_where_nothing_learns_or_nothing_samples(transfer_of: TransferOf) -> None:
    assert transfer_of({"schedule.*.algorithm": Algorithm(use=Preset.EVAL)}) is None
    imitation = {"schedule.*.algorithm": Algorithm(use=Preset.SFT), "eval": None}
    assert transfer_of(imitation) is None
