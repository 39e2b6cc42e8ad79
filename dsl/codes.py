"""Every diagnostic code and its meaning in one line: `codes.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

__all__ = ["CODES"]

CODES: Mapping[str, str] = json.loads(Path(__file__).with_name("codes.json").read_text(encoding="utf-8"))
