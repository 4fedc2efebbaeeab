"""A pipeline's project: its folder, the specification in it, and where runs leave their state."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipstream.cli.pipeline.template import STATE
from slipstream.errors import ConfigError

SPEC_NAMES = ("spark-pipeline.yml", "spark-pipeline.yaml")


@dataclass(frozen=True, slots=True)
class Project:
    """A specification that was read. `storage` is a URI."""

    name: str
    spec: Path
    storage: str

    @property
    def folder(self) -> Path:
        """Where the specification is."""
        return self.spec.parent

    @property
    def state(self) -> Path:
        """What runs leave behind: the development server's store, Spark's tables, the last log."""
        return self.folder / STATE


def find_project(spec: Path | None) -> Project:
    """The project of a specification, or of the one in this folder or above.

    Raises `ConfigError` if there is none, or it says too little.
    """
    path = _find() if spec is None else spec.absolute()
    if not path.is_file():
        raise ConfigError(f"there is no pipeline specification {path}; `--spec FILE` names one")
    found = _load(path)
    for field in ("name", "storage"):
        if not found.get(field):
            raise ConfigError(f"{path} has no {field}: add a line `{field}: ...`")
    return Project(str(found["name"]), path, str(found["storage"]))


def _find() -> Path:
    here = Path.cwd()
    for folder in (here, *here.parents):
        for name in SPEC_NAMES:
            if (folder / name).is_file():
                return folder / name
    raise ConfigError(
        f"there is no {SPEC_NAMES[0]} in {here} or above: go to a project, name its specification "
        "with --spec, or begin one with `slipstream pipeline init NAME`"
    )


def _load(path: Path) -> dict[str, Any]:
    try:
        import yaml
    except ImportError as error:
        raise ConfigError("PyYAML is not installed: pip install 'slipstream[spark]'") from error
    try:
        found = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path} is no pipeline specification: it has no fields")
    return found
