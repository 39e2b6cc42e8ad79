"""The group of a learner's ranks, as a launcher makes it; groups that work are in `test_ranks`."""

from __future__ import annotations

import pytest
from agym.runtime.backends.process_group import join_ranks, open_store
from agym.runtime.errors import RunError


def test_store_is_on_a_port_of_its_own():
    stores = [open_store("127.0.0.1", 1.0) for _ in range(2)]
    assert len({store.port for store in stores}) == 2


def test_address_that_no_interface_has_is_named():
    with pytest.raises(RunError, match=r"no network interface with the address 203\.0\.113\.1"):
        join_ranks(0, 2, store=("127.0.0.1", 1), address="203.0.113.1", timeout_s=1.0)


def test_store_that_nobody_opened_is_named(monkeypatch: pytest.MonkeyPatch):
    for name in ("LOCAL_RANK", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        monkeypatch.setenv(name, "0")  # restored afterwards
    with pytest.raises(RunError, match=r"rank 1 of 2 did not find the others at 127\.0\.0\.1:1 within 1 s"):
        join_ranks(1, 2, store=("127.0.0.1", 1), address="127.0.0.1", timeout_s=1.0)
