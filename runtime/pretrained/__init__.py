"""Pretrained models that recipes name without a hub: which there are, where they are cached, how one gets there."""
