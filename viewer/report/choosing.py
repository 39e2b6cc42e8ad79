"""Which episodes of a run a report shows: some of each kind, spread over the whole run; the same for the same run."""

from __future__ import annotations

from collections.abc import Sequence

from ..queries import EpisodeFilter, EpisodeSummary, Queries

__all__ = ["choose_episodes", "share_out", "spread"]

_KINDS = tuple(
    EpisodeFilter(purposes=(purpose,), success=success)
    for purpose in ("eval", "train", "demonstration")
    for success in (False, True)
)


def choose_episodes(queries: Queries, most: int) -> list[EpisodeSummary]:
    """Choose episodes: evaluations first, then training and demonstrations, failures before successes."""
    totals = [queries.find(kind, limit=1).total for kind in _KINDS]
    chosen = list[EpisodeSummary]()
    for kind, total, share in zip(_KINDS, totals, share_out(totals, most), strict=True):
        for place in spread(total, share):
            chosen += queries.find(kind, offset=place, limit=1, order="oldest").episodes
    return chosen


def share_out(totals: Sequence[int], most: int) -> list[int]:
    """Divide so many places as evenly as there are episodes for them."""
    shares, left, open_kinds = [0] * len(totals), most, [at for at, total in enumerate(totals) if total]
    while left and open_kinds:
        for at in open_kinds[:left]:
            shares[at] += 1
        left -= min(left, len(open_kinds))
        open_kinds = [at for at in open_kinds if shares[at] < totals[at]]
    return shares


def spread(total: int, share: int) -> list[int]:
    """Places from the last to the first, at even distances."""
    if share == 1:
        return [total - 1]
    return [total - 1 - at * (total - 1) // (share - 1) for at in range(share)]
