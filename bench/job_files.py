"""Job files of every shipped recipe for GPUs, checked by the systems' own schemas.

    python bench/job_files.py [--crd ray.io_rayjobs.yaml]

SkyPilot's schemas come with its package (`pip install skypilot`, in an environment of its own that also has agym), the
CRD of KubeRay with its Helm chart, in helm-chart/kuberay-operator/crds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from agym.catalog import catalog
from agym.dsl.compile import compile_recipe
from agym.files import DiskLibrary, is_base, shipped_names

OPTIONS = {
    "kubernetes": ("image=registry/agym:1", "claim=runs", "gpu-product=H100", "service-account=me", "namespace=rl"),
    "skypilot": ("image=registry/agym:1", "volume=runs", "infra=kubernetes", "spot=true"),
}


def recipes() -> Iterator[str]:
    for name in shipped_names():
        if is_base(f"{name}.yaml"):
            continue
        library = DiskLibrary(Path.cwd())
        source = library.open(name)
        compiled = compile_recipe(source, library, (), {}, catalog())
        if compiled.variants and compiled.variants[0].draft.hardware.gpus_per_node:
            yield name


def write(system: str, name: str, folder: Path) -> Iterator[Path]:
    words = [word for option in OPTIONS[system] for word in ("--job-option", option)]
    done = subprocess.run(
        [sys.executable, "-m", "agym", "run", name, "--on", system, "--dry-run", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        print(f"{name}: not written: {done.stderr.splitlines()[0]}")
        return
    for line in done.stdout.splitlines():
        if line.startswith("wrote "):
            yield folder / line.removeprefix("wrote ").partition(": ")[0]


def rayjob_schema(crd: Path) -> Any:
    (version,) = (each for each in yaml.safe_load(crd.read_text())["spec"]["versions"] if each["name"] == "v1")
    return _closed(version["schema"]["openAPIV3Schema"])


def _closed(schema: Any) -> Any:
    """As the API server prunes: a field that is not there is a mistake."""
    if isinstance(schema, dict):
        closed = {key: _closed(value) for key, value in schema.items()}
        if "properties" in closed and "additionalProperties" not in closed:
            closed["additionalProperties"] = closed["properties"] == {}
        if closed.get("x-kubernetes-int-or-string"):
            return {"type": ["integer", "string"]}
        return closed
    return [_closed(each) for each in schema] if isinstance(schema, list) else schema


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crd", type=Path)
    crd = parser.parse_args().crd
    schemas: dict[str, Any] = {}
    try:
        from sky.utils.schemas import get_task_schema

        schemas["skypilot"] = get_task_schema()
    except ImportError:
        print("skypilot is not installed: its task files are not checked")
    if crd is not None:
        schemas["kubernetes"] = rayjob_schema(crd)
        del schemas["kubernetes"]["properties"]["metadata"]
        schemas["kubernetes"]["properties"]["metadata"] = {"type": "object"}
    for system, schema in schemas.items():
        count = 0
        with tempfile.TemporaryDirectory() as folder:
            for name in recipes():
                for file in write(system, name, Path(folder)):
                    document = list(yaml.safe_load_all(file.read_text()))[-1]
                    jsonschema.validate(document, schema)
                    if system == "skypilot":
                        import sky

                        sky.Task.from_yaml_config(document, secrets_overrides=dict.fromkeys(document["secrets"], "x"))
                    count += 1
        print(f"{system}: {count} files are right")


if __name__ == "__main__":
    main()
