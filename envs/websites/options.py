"""What a user may choose about these sites."""

from __future__ import annotations

from dataclasses import dataclass

from .tasks import PARTS

__all__ = ["WebsitesOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebsitesOptions:
    sites: tuple[str, ...] = PARTS
    """Tasks that need no others."""
    templates: tuple[str, ...] = ()
    """Only tasks of these templates, such as `forum/block`; of all where none is named."""
    observation_tokens: int = 4096
    """Longest piece of a page that is shown at a time."""
    repeats: bool = True
    """Whether lines that the last page had too, such as a site's navigation, are shown again."""
    remind: bool = False
    """Whether the task stands under each page, in place of once above the first."""
    max_steps: int = 30
    """Most actions in one episode."""
    screenshots: bool = False
    """Whether each observation has a picture."""
