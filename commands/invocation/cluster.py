"""`agym doctor --cluster`: looks at every node of a Ray cluster, for itself or for a recipe."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ...launch.ray_survey import ClusterError, survey_cluster
from ...launch.survey import find_problems
from ...reporters.cluster import cluster_json, cluster_text
from ...runtime.backends.registry import ENGINE_PACKAGES
from ...runtime.errors import RunError
from .compiling import build_compiler
from .shell import Exit, Shell

__all__ = ["examine_cluster"]

_PACKAGES = ("agym-dsl", *ENGINE_PACKAGES)


def examine_cluster(arguments: argparse.Namespace, shell: Shell) -> Exit:
    plans = (
        [each.plan for each in build_compiler(shell, arguments.set).runs(arguments.recipe, on_disk=False)]
        if arguments.recipe
        else []
    )
    folder = arguments.folder or (plans[0].output if plans else "runs")
    try:
        survey = survey_cluster(
            arguments.cluster,
            Path(os.path.abspath(shell.cwd / folder)),
            _PACKAGES,
            say=lambda text: print(f"agym doctor: {text}", file=shell.err),
        )
    except ClusterError as error:
        raise RunError(str(error)) from error
    problems = find_problems(
        survey,
        nodes=max((plan.hardware.nodes for plan in plans), default=0),
        gpus_per_node=max((plan.hardware.gpus_per_node for plan in plans), default=0),
    )
    write = cluster_json if arguments.format == "json" else cluster_text
    shell.out.write(write(survey, problems))
    return Exit.WRONG if problems else Exit.RIGHT
