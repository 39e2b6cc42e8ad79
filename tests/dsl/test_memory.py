"""Memory: parameters against published counts, every other formula against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from agym.dsl.model.model_sizes import find_published, find_shape, make_shape, read_shape
from agym.dsl.model.plan import MemoryItem, MemoryUse, Phase, Role, peaks
from agym.dsl.model.recipe import (
    DType,
    Family,
    Gpu,
    Hardware,
    Init,
    Layout,
    Lora,
    Model,
    ModelShape,
    Offload,
    TokenizerInit,
)
from agym.dsl.planning.memory import (
    LOGIT_ELEMENTS,
    Sizing,
    activation_bytes,
    adapter_parameters,
    capacity_bytes,
    choose_zero,
    critic_parameters,
    engine_limit,
    estimate_memory,
    kv_bytes_per_token,
    layer_parameters,
    logit_bytes,
    one_episode_cache,
    parameters,
    width,
)
from agym.runtime.protocols import LearnerSettings

PUBLISHED = {
    "Qwen/Qwen2.5-0.5B": 494_032_768,
    "Qwen/Qwen2.5-1.5B-Instruct": 1_543_714_304,
    "Qwen/Qwen2.5-3B": 3_085_938_688,
    "Qwen/Qwen2.5-7B-Instruct": 7_615_616_512,
    "Qwen/Qwen2.5-14B": 14_770_033_664,
    "Qwen/Qwen2.5-32B-Instruct": 32_763_876_352,
    "Qwen/Qwen2.5-72B": 72_706_203_648,
    "Qwen/Qwen3-0.6B": 596_049_920,
    "Qwen/Qwen3-1.7B": 1_720_574_976,
    "Qwen/Qwen3-4B": 4_022_468_096,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "Qwen/Qwen3-14B": 14_768_307_200,
    "Qwen/Qwen3-32B": 32_762_123_264,
    "meta-llama/Llama-3.2-1B-Instruct": 1_235_814_400,
    "meta-llama/Llama-3.2-3B": 3_212_749_824,
    "meta-llama/Llama-3.1-8B-Instruct": 8_030_261_248,
    "meta-llama/Llama-3.3-70B-Instruct": 70_553_706_496,
    "HuggingFaceTB/SmolLM2-135M": 134_515_008,
    "HuggingFaceTB/SmolLM2-360M-Instruct": 361_821_120,
    "HuggingFaceTB/SmolLM2-1.7B": 1_711_376_384,
}

TOY = ModelShape(layers=2, hidden=8, heads=4, kv_heads=2, intermediate=16, vocab=100)
"""A head is 2 wide. A block: q 64, k 32, v 32, o 64, feed-forward 3·128, norms 16 = 592. All: 800 + 1184 + 8 + 800."""


def published(name: str) -> ModelShape:
    known = find_published(name)
    assert known is not None, name
    return known.shape


SMALL = published("Qwen/Qwen2.5-0.5B")
SEVEN = published("Qwen/Qwen2.5-7B")


def sizing(shape: ModelShape = TOY, **changes: object) -> Sizing:
    """One GPU of one rank that does everything, in bf16."""
    base = Sizing(
        shape=shape,
        critic=None,
        lora=None,
        reference=False,
        teacher=None,
        width=2,
        zero=2,
        offload=Offload.NONE,
        checkpointing=True,
        ranks=1,
        sequence_parallel=1,
        ranks_per_node=1,
        tensor_parallel=1,
        engines_per_node=1,
        colocated=True,
        host=False,
        inline=True,
        learns=True,
        samples=True,
        micro_batch_tokens=100,
        context_tokens=50,
        slots_per_engine=4,
        cache_bytes=None,
        capacity=None,
        memory_share=0.5,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def items(size: Sizing, role: Role, host: bool = False) -> dict[str, int]:
    found = [use for use in estimate_memory(size) if use.role is role and use.host is host]
    return {item.what: item.bytes for use in found for item in use.items}


# --- parameters ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PUBLISHED)
def test_parameters_are_the_published_ones(path: str) -> None:
    shape = find_shape(Model(path=path))
    assert shape is not None
    assert parameters(shape) == PUBLISHED[path]


def test_a_toy_block_counted_by_hand() -> None:
    assert layer_parameters(TOY) == 592
    assert parameters(TOY) == 2792


def test_tying_drops_the_output_layer() -> None:
    assert parameters(replace(TOY, tie_embeddings=True)) == 1992


def test_biases_are_those_of_queries_keys_and_values() -> None:
    assert layer_parameters(replace(TOY, attention_bias=True)) == 592 + 8 + 4 + 4


def test_head_norms_are_two_per_block() -> None:
    assert layer_parameters(replace(TOY, qk_norm=True)) == 592 + 2 + 2


def test_wider_heads_than_the_width_says() -> None:
    # q 8·12, k and v 8·6 each, o 12·8
    assert layer_parameters(replace(TOY, head_dim=3)) == 96 + 48 + 48 + 96 + 384 + 16


def test_a_critic_has_one_output() -> None:
    assert critic_parameters(TOY) == 800 + 1184 + 8 + 8
    assert critic_parameters(SEVEN) == 7_070_622_720


def test_adapters_on_all_layers_of_a_known_model() -> None:
    # 16 · 24 · (1792 + 1024 + 1024 + 1792 + 3·5760)
    assert adapter_parameters(SMALL, Lora(rank=16)) == 8_798_208


def test_adapters_on_two_layers() -> None:
    assert adapter_parameters(TOY, Lora(rank=3, targets=("q_proj", "v_proj"))) == 2 * 3 * ((8 + 8) + (8 + 4))


def test_a_target_twice_counts_once() -> None:
    assert adapter_parameters(TOY, Lora(rank=1, targets=("q_proj", "q_proj"))) == 2 * 16


# --- tokens --------------------------------------------------------------------------------------------------------


def test_cache_of_a_token_by_hand() -> None:
    assert kv_bytes_per_token(SEVEN, 2) == 57_344  # 2 · 28 · 4 · 128 · 2
    assert kv_bytes_per_token(SMALL, 4) == 24_576  # 2 · 24 · 2 · 64 · 4


def test_key_value_heads_are_shared_out_and_then_copied() -> None:
    assert kv_bytes_per_token(SEVEN, 2, 2) == 28_672
    assert kv_bytes_per_token(SEVEN, 2, 4) == kv_bytes_per_token(SEVEN, 2, 8) == 14_336


def test_cache_of_one_episode() -> None:
    assert one_episode_cache(sizing(SEVEN, context_tokens=10_752, tensor_parallel=2)) == 308_281_344


def test_activations_with_checkpointing_by_hand() -> None:
    # a block: 2·896·8 + 2·16·64·2 + 4·4864·2 = 14336 + 4096 + 38912 = 57344; its input: 24·896·2 = 43008
    assert activation_bytes(SMALL, 1000, 2, checkpointing=True) == 100_352_000


def test_activations_without_checkpointing_by_hand() -> None:
    assert activation_bytes(SMALL, 1000, 2, checkpointing=False) == 1_376_256_000


def test_activations_in_full_precision_by_hand() -> None:
    # 2·8·12 + 2·6·2·4 + 4·16·4 = 192 + 96 + 256 = 544, twice
    assert activation_bytes(TOY, 1, 4, checkpointing=False) == 1088


def test_head_norms_keep_their_input() -> None:
    plain = activation_bytes(TOY, 1, 2, checkpointing=False)
    assert activation_bytes(replace(TOY, qk_norm=True), 1, 2, checkpointing=False) == plain + 2 * 6 * 2 * 6


def test_ranks_that_divide_a_row_hold_their_part_of_it_and_all_of_it_for_their_heads() -> None:
    # a block as above, and 2·6·2·4 = 96 once more; with four ranks each of them has a key-value head: 2·8·2·4
    assert activation_bytes(TOY, 1, 4, checkpointing=False, sequence_parallel=2) == 2 * (544 + 96)
    assert activation_bytes(TOY, 1, 4, checkpointing=False, sequence_parallel=4) == 2 * (544 + 128)
    # 25 of 101 tokens, the largest part 26; in half precision a block takes 304 + 64, its input 32
    found = items(sizing(ranks=4, sequence_parallel=4, micro_batch_tokens=101), Role.LEARNER)
    assert (found["activations"], found["logits"]) == (26 * (304 + 64 + 32), 7 * 4 * 26 * 100)
    assert items(sizing(critic=TOY, sequence_parallel=4), Role.CRITIC)["activations"] == 25 * (304 + 64 + 32)


def test_logits_are_those_of_one_chunk() -> None:
    assert logit_bytes(TOY, 10) == 28_000  # 7 · 4 · 10 · 100
    # 7 · 4 · 2^25, and the output layer's gradient: 4 · 152064 · 3584
    assert logit_bytes(SEVEN, 20_000) == 939_524_096 + 2_179_989_504
    assert logit_bytes(SEVEN, 20_000, trained=False) == 939_524_096


@pytest.mark.parametrize(
    ("dtype", "on_gpus", "bytes_"),
    [
        (DType.AUTO, True, 2),
        (DType.AUTO, False, 4),
        (DType.FP32, True, 4),
        (DType.FP16, True, 2),
        (DType.BF16, False, 2),
    ],
)
def test_width_of_a_weight(dtype: DType, on_gpus: bool, bytes_: int) -> None:
    assert width(dtype, on_gpus) == bytes_


# --- a learner -----------------------------------------------------------------------------------------------------

ZERO = {
    # stage: weights, gradients, optimizer of 7,615,616,512 parameters over 8 ranks in fp32
    0: (30_462_466_048, 30_462_466_048, 60_924_932_096),
    1: (30_462_466_048, 30_462_466_048, 11_423_424_768),
    2: (30_462_466_048, 2 * 3_807_808_256, 11_423_424_768),
    3: (3_807_808_256, 3_807_808_256, 11_423_424_768),
}


@pytest.mark.parametrize("stage", ZERO)
def test_zero_splits_one_thing_more_at_each_stage(stage: int) -> None:
    found = items(sizing(SEVEN, zero=stage, ranks=8, width=4), Role.LEARNER)
    assert (found["weights"], found["gradients"], found["optimizer"]) == ZERO[stage]


def test_gradients_in_half_precision_add_up_in_full() -> None:
    found = items(sizing(SEVEN, zero=2, ranks=8), Role.LEARNER)
    assert (found["weights"], found["gradients"]) == (15_231_233_024, 3_807_808_256)
    found = items(sizing(SEVEN, zero=3, ranks=8), Role.LEARNER)
    assert (found["weights"], found["gradients"]) == (1_903_904_128, 3_807_808_256)


def test_a_step_copies_gradients_when_activations_are_gone() -> None:
    assert items(sizing(zero=0, width=4), Role.LEARNER)["gradients, copied"] == (2792 + 2792) * 4
    assert items(sizing(zero=1, width=4, ranks=2), Role.LEARNER)["gradients, copied"] == (2792 + 1396) * 4
    assert items(sizing(zero=3, ranks=2), Role.LEARNER)["copy of gradients"] == 1396 * 4
    # at most 10^9 elements at a time
    assert items(sizing(SEVEN, zero=3, ranks=2), Role.LEARNER)["copy of gradients"] == 4 * 10**9


@pytest.mark.parametrize(
    ("zero", "width", "offload", "ranks", "runs"),
    [
        (2, 4, Offload.NONE, 1, 0),  # nothing to shard
        (2, 4, Offload.OPTIMIZER, 1, 2),
        (1, 4, Offload.NONE, 2, 1),
        (1, 2, Offload.NONE, 1, 2),  # half precision has no stage 1
        (1, 2, Offload.NONE, 8, 2),
        (3, 2, Offload.NONE, 1, 3),
    ],
)
def test_the_stage_that_runs(zero: int, width: int, offload: Offload, ranks: int, runs: int) -> None:
    assert choose_zero(zero, width, offload, ranks) == runs


def test_the_largest_share_decides() -> None:
    assert items(sizing(zero=3, ranks=5), Role.LEARNER)["weights"] == 559 * 2  # 2792 / 5 = 558.4


def test_plain_full_precision_is_its_own_master_copy() -> None:
    assert items(sizing(zero=0, width=4), Role.LEARNER)["optimizer"] == 2792 * 8
    assert items(sizing(zero=1, width=4), Role.LEARNER)["optimizer"] == 2792 * 12


def test_buckets_are_bounded_and_double() -> None:
    assert items(sizing(SEVEN, ranks=2), Role.LEARNER)["buckets"] == 2_000_000_000
    assert items(sizing(ranks=2), Role.LEARNER)["buckets"] == 2 * 2792 * 2
    assert "buckets" not in items(sizing(zero=0, width=4), Role.LEARNER)


def test_stage_three_keeps_what_it_gathered_for_a_while() -> None:
    assert items(sizing(zero=3, ranks=2), Role.LEARNER)["gathered weights"] == 2 * 2792 * 2
    # 10^9 that are soon needed again, and the embedding on its way
    assert items(sizing(SEVEN, zero=3, ranks=2), Role.LEARNER)["gathered weights"] == 2 * (10**9 + 544_997_376)
    assert "gathered weights" not in items(sizing(zero=3), Role.LEARNER)


def test_offloaded_optimizer_is_on_the_host_of_all_ranks_of_a_machine() -> None:
    size = sizing(SEVEN, ranks=8, ranks_per_node=4, offload=Offload.OPTIMIZER)
    card, host = items(size, Role.LEARNER), items(size, Role.LEARNER, host=True)
    assert "optimizer" not in card
    assert card["gradients"] == 3_807_808_256
    assert host == {
        "gradients": 4 * 3_807_808_256,
        "new weights": 4 * 1_903_904_128,
        "optimizer": 4 * 11_423_424_768,
        "model file": 4 * 15_231_233_024,
    }


def test_offload_below_stage_two_leaves_gradients_on_the_card() -> None:
    size = sizing(zero=1, width=4, ranks=2, offload=Offload.OPTIMIZER)
    assert items(size, Role.LEARNER)["gradients"] == 2792 * 4


def test_offloading_all_moves_weights_and_gathers_them() -> None:
    size = sizing(zero=3, offload=Offload.ALL)
    card, host = items(size, Role.LEARNER), items(size, Role.LEARNER, host=True)
    assert "weights" not in card
    assert card["gathered weights"] == 2 * 2792 * 2
    assert host["weights"] == 2792 * 2
    assert host["gradients"] == 2792 * 8


def test_adapters_alone_have_gradients_and_an_optimizer() -> None:
    found = items(sizing(SMALL, lora=Lora(rank=16)), Role.LEARNER)
    assert found["weights"] == (494_032_768 + 8_798_208) * 2
    assert found["gradients"] == 8_798_208 * 4
    assert found["optimizer"] == 8_798_208 * 12


def test_a_critic_with_adapters_learns_by_them_and_its_output_layer() -> None:
    found = items(sizing(critic=SMALL, lora=Lora(rank=16)), Role.CRITIC)
    assert found["gradients"] == (8_798_208 + 896) * 4
    assert found["weights"] == (494_032_768 + 896 + 8_798_208) * 2


def test_a_critic_learns_apart_and_has_no_logits() -> None:
    found = items(sizing(critic=TOY), Role.CRITIC)
    assert found["weights"] == 2000 * 2
    assert found["optimizer"] == 2000 * 12
    assert "logits" not in found
    size = sizing(critic=TOY, zero=0, width=4)
    phases = {item.phase for use in estimate_memory(size) if use.role is Role.CRITIC for item in use.items}
    assert phases == {Phase.RESIDENT, Phase.VALUING, Phase.STEPPING}


def test_a_reference_is_a_copy_of_the_weights() -> None:
    assert items(sizing(reference=True), Role.REFERENCE) == {"weights": 5584}
    assert items(sizing(reference=True, zero=3, ranks=4), Role.REFERENCE) == {"weights": 698 * 2}


def test_below_stage_three_each_rank_starts_with_a_whole_model_on_the_host() -> None:
    assert items(sizing(ranks=8, ranks_per_node=8), Role.LEARNER, host=True) == {"model file": 8 * 2792 * 2}
    assert items(sizing(critic=SEVEN), Role.LEARNER, host=True) == {"model file": 15_231_233_024}
    assert items(sizing(zero=3, ranks=8, ranks_per_node=8), Role.LEARNER, host=True) == {}
    assert items(sizing(zero=3), Role.LEARNER, host=True) == {"model file": 2792 * 2}


def test_weights_wait_on_the_host_for_samplers_in_other_processes() -> None:
    tied = replace(TOY, tie_embeddings=True)
    assert items(sizing(tied, zero=3, ranks=2, inline=False), Role.LEARNER, host=True) == {"weights sent": 2792 * 2}
    adapted = sizing(SMALL, zero=3, ranks=2, lora=Lora(rank=16), inline=False)
    assert items(adapted, Role.LEARNER, host=True) == {"weights sent": 8_798_208 * 2}
    assert items(sizing(inline=False, learns=False), Role.LEARNER, host=True) == {}


def test_nothing_learns_where_no_stage_does() -> None:
    assert {use.role for use in estimate_memory(sizing(learns=False, critic=TOY, reference=True))} == {Role.ROLLOUT}


def test_nothing_samples_where_nothing_is_played() -> None:
    assert {use.role for use in estimate_memory(sizing(samples=False))} == {Role.LEARNER}


# --- an engine -----------------------------------------------------------------------------------------------------


def test_an_engine_on_an_unknown_card_shows_the_least_cache() -> None:
    found = items(sizing(), Role.ROLLOUT)
    # forward: 8192 · 2 · (32 + 32); drawn: 2 · 4 · 256 · 100
    assert found["workspace"] == 1_048_576 + 204_800
    assert found["cache"] == 50 * 2 * 2 * 2 * 2 * 2


def test_an_engine_of_its_own_takes_its_share() -> None:
    size = sizing(SEVEN, colocated=False, capacity=80 * 10**9, memory_share=0.9, context_tokens=8192)
    assert sum(items(size, Role.ROLLOUT).values()) == 72 * 10**9


def test_an_engine_next_to_a_learner_leaves_what_stays() -> None:
    size = sizing(SEVEN, zero=3, ranks=8, capacity=80 * 10**9, memory_share=0.9, context_tokens=8192)
    stays = 1_903_904_128 + 11_423_424_768 + 3_807_808_256 + 2_000_000_000 + 1_500_000_000
    assert sum(items(size, Role.ROLLOUT).values()) == 80 * 10**9 - stays


def test_a_lack_of_cache_shows_as_too_much_memory() -> None:
    size = sizing(SEVEN, colocated=False, capacity=10 * 10**9, context_tokens=8192)
    assert items(size, Role.ROLLOUT)["cache"] == 8192 * 57_344
    assert sum(items(size, Role.ROLLOUT).values()) > 10 * 10**9


def test_the_limit_of_an_engine_is_unknown_on_an_unknown_card() -> None:
    assert engine_limit(sizing(), ()) is None


def test_tensor_parallel_shares_the_weights() -> None:
    assert items(sizing(SEVEN, tensor_parallel=4), Role.ROLLOUT)["weights"] == 3_807_808_256


def test_on_a_cpu_all_of_it_is_host_memory_with_a_cache_for_every_slot() -> None:
    size = sizing(host=True, inline=False, width=4, slots_per_engine=3, ranks_per_node=2, engines_per_node=2, ranks=2)
    assert all(use.host for use in estimate_memory(size))
    assert items(size, Role.ROLLOUT, host=True) == {
        "weights": 2 * 2792 * 4,
        "process": 2 * (500_000_000 + 400_000_000),
        "cache": 2 * 3 * 50 * 2 * 2 * 2 * 2 * 4,
    }
    assert items(size, Role.LEARNER, host=True)["weights"] == 2 * 2792 * 4


def test_an_engine_in_the_learners_process_adds_its_libraries() -> None:
    size = sizing(host=True, zero=0, width=4)
    assert items(size, Role.LEARNER, host=True)["process"] == 500_000_000
    assert items(size, Role.ROLLOUT, host=True)["process"] == 400_000_000


def test_on_a_cpu_a_learner_keeps_kernels_in_half_precision_alone() -> None:
    half, full = (items(sizing(host=True, width=width), Role.LEARNER, host=True) for width in (2, 4))
    assert half["kernels"] == 250_000_000
    assert "kernels" not in full


def test_on_a_cpu_an_engine_keeps_its_memory_while_the_learner_works() -> None:
    engine = next(use for use in estimate_memory(sizing(host=True)) if use.role is Role.ROLLOUT)
    assert {item.phase for item in engine.items} == {Phase.RESIDENT}


def test_on_a_cpu_the_cache_is_what_was_asked_for() -> None:
    assert items(sizing(host=True, cache_bytes=2 * 10**9), Role.ROLLOUT, host=True)["cache"] == 2 * 10**9


# --- peaks and cards -----------------------------------------------------------------------------------------------


def use(role: Role, **phases: int) -> MemoryUse:
    return MemoryUse(role=role, items=tuple(MemoryItem(what=p, bytes=n, phase=Phase(p)) for p, n in phases.items()))


USES = (
    use(Role.LEARNER, resident=10, learning=5),
    use(Role.CRITIC, resident=3, valuing=7),
    use(Role.ROLLOUT, resident=1, sampling=6),
    MemoryUse(role=Role.LEARNER, items=(MemoryItem(what="optimizer", bytes=1000),), host=True),
)


def test_a_shared_card_holds_what_stays_and_the_largest_phase() -> None:
    assert peaks(USES, Layout.COLOCATED) == {Role.LEARNER: 14 + 7}


def test_steps_of_the_policy_and_of_the_critic_are_not_added() -> None:
    steps = (use(Role.LEARNER, resident=1, stepping=5), use(Role.CRITIC, resident=2, stepping=4, valuing=3))
    assert peaks(steps, Layout.COLOCATED) == {Role.LEARNER: 3 + 5}


def test_split_cards_are_counted_apart() -> None:
    assert peaks(USES, Layout.SPLIT) == {Role.LEARNER: 13 + 7, Role.ROLLOUT: 7}


def test_capacity_of_known_and_unknown_cards() -> None:
    assert capacity_bytes(Hardware(gpus_per_node=1, gpu=Gpu.H100)) == 79 * 2**30
    assert capacity_bytes(Hardware(gpus_per_node=1, gpu=Gpu.H100, gpu_memory_gb=96.5)) == 96_500_000_000
    assert capacity_bytes(Hardware(gpus_per_node=1)) is None
    assert capacity_bytes(Hardware(gpu=Gpu.H100)) is None


# --- where sizes come from -----------------------------------------------------------------------------------------


def test_hub_ids_are_known_in_any_case_and_folders_are_not() -> None:
    known = find_published("qwen/qwen2.5-7b-instruct")
    assert known is not None
    assert known.max_positions == 32_768
    assert find_published("./Qwen/Qwen2.5-7B") is None
    assert find_published(None) is None


def test_sizes_of_a_model_from_scratch() -> None:
    init = Init(family=Family.QWEN2, layers=3, hidden=64, heads=2, kv_heads=1, tokenizer=TokenizerInit(vocab=90))
    assert make_shape(init) == ModelShape(
        layers=3, hidden=64, heads=2, kv_heads=1, intermediate=192, vocab=90, attention_bias=True
    )


def test_another_tokenizer_brings_its_vocabulary_or_hides_it() -> None:
    known = find_shape(Model(init=Init(), tokenizer="Qwen/Qwen2.5-7B"))
    assert known is not None
    assert known.vocab == 152_064
    assert find_shape(Model(init=Init(), tokenizer="./mine")) is None


def test_a_recipe_s_own_sizes_come_before_the_table() -> None:
    assert find_shape(Model(path="Qwen/Qwen2.5-7B", shape=TOY)) is TOY
    assert find_shape(Model(path="someone/something")) is None


CONFIG = {
    "model_type": "qwen3",
    "num_hidden_layers": 28,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "intermediate_size": 3072,
    "vocab_size": 151_936,
    "head_dim": 128,
    "tie_word_embeddings": True,
}


def test_sizes_from_a_configuration_file() -> None:
    assert read_shape(CONFIG) == published("Qwen/Qwen3-0.6B")


def test_a_configuration_without_key_value_heads_has_one_per_head() -> None:
    shape = read_shape({key: CONFIG[key] for key in CONFIG if key != "num_key_value_heads"})
    assert shape is not None
    assert shape.kv_heads == 16


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "qwen3",
        {},
        CONFIG | {"model_type": "mamba"},
        CONFIG | {"hidden_size": "1024"},
        CONFIG | {"hidden_size": 0},
        CONFIG | {"num_hidden_layers": True},
        CONFIG | {"num_key_value_heads": -1},
        {key: CONFIG[key] for key in CONFIG if key != "vocab_size"},
    ],
)
def test_a_configuration_that_is_not_understood_gives_no_sizes(data: object) -> None:
    assert read_shape(data) is None


# --- what the engines do -------------------------------------------------------------------------------------------


def test_the_learner_s_limit_of_logits_is_the_plan_s() -> None:
    assert LearnerSettings(model=Path()).logit_elements == LOGIT_ELEMENTS
