"""Lists all settings, set or default, and where each value comes from."""

from __future__ import annotations

import json
from pathlib import Path

from tandemd.config.config import Config, keyed, load_with_origins
from tandemd.config.schema import ClassTable


def listing(path: Path | None) -> str:
    """Return the configuration that `config.load` reads as a JSON array, one object per key.

    Raises:
        UsageError: as `config.load`.
    """
    config, origins = load_with_origins(path)
    origin_of = {key: str(file) for key, file in origins.items()}
    items = [
        {"key": key, "value": value, "origin": origin_of.get(key)}  # null: the default
        for key, value in keyed(_whole(config))
    ]
    return json.dumps(items, indent=2)


def _whole(config: Config) -> dict[str, object]:
    """Return all tables; of GPUs, users and groups only those in the configuration."""
    tables = config.model_dump(by_alias=True, exclude_none=True)
    said = tables["class"]
    # Every class has a weight, also if it is not configured.
    for job_class, weight in config.options().weights:
        name = job_class.name.lower()
        said[name] = ClassTable().model_dump() | said.get(name, {}) | {"weight": weight}
    return tables
