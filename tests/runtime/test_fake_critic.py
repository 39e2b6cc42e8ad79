"""The fake critic keeps the promise of the protocol, so that what is built on it would hold with the real engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from agym.runtime.protocols import TrainSequence, UpdateFault, ValueLearner, ValueSettings

from .fake_critic import FakeCritic


def told(target: float) -> TrainSequence:
    ids, loss_mask = np.array([3, 4, 5], np.int32), np.array([False, True, False])
    nothing, targets = np.zeros(3, np.float32), np.full(3, target, np.float32)
    return TrainSequence(ids=ids, loss_mask=loss_mask, advantages=nothing, values=nothing, value_targets=targets)


def test_critic_comes_to_expect_what_it_is_told_and_goes_on_where_it_was(tmp_path: Path):
    critic = FakeCritic()
    _: ValueLearner = critic
    losses = [critic.update([told(0.5)], ValueSettings(lr=0.5)).loss for _ in range(20)]
    assert losses[0] == 0.125
    assert losses[-1] < 1e-9
    assert critic.values([told(0)])[0].tolist() == pytest.approx([0.5, 0, 0], abs=1e-4)
    critic.save(tmp_path)
    other = FakeCritic()
    other.load(tmp_path)
    assert other == critic


def test_refused_updates_of_a_critic_change_nothing():
    critic = FakeCritic(expected={3: 1.0})
    faults = [critic.update(batch, ValueSettings(lr=1.0)).fault for batch in ([told(np.nan)], [])]
    assert faults == [UpdateFault.NAN, UpdateFault.EMPTY]
    assert critic.expected == {3: 1.0}
