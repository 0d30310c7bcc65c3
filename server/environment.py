"""Our keys among the environment variables and the lines of a ``.env`` file, read strictly."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dotenv import dotenv_values
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from cosyvoice_stream.errors import ConfigError

PREFIX: Final = "COSYVOICE_STREAM_"
"""Of every environment variable that this package reads."""

_NEAR_MISS = 0.9
"""Similarity (`difflib`) from which a key without our prefix is taken for a misspelt one of ours;
``COSYVOICE_STREAMS_PORT`` has 0.98, ``COSYVOICE_PORT`` 0.78."""

_KUBERNETES_LINK = re.compile(rf"{PREFIX}(SERVICE_(HOST|PORT)|PORT_\d+_(TCP|UDP|SCTP))(_\w+)?")
"""Variables that Kubernetes sets in every pod beside a Service named ``cosyvoice-stream``; it also
sets ``…_PORT`` to an address such as ``tcp://10.0.0.7:8000``."""


class Environment(PydanticBaseSettingsSource):
    """``.env`` below the process environment, reduced to our own keys.

    Raises:
        ConfigError: A key is ours by its prefix, or nearly, and names no setting.
    """

    def __init__(self, settings_cls: type[BaseSettings], env_file: Any) -> None:
        super().__init__(settings_cls)
        fields = frozenset(settings_cls.model_fields)
        self._values: dict[str, str] = {}
        if isinstance(env_file, str | Path) and Path(env_file).is_file():
            in_file = dotenv_values(env_file, encoding="utf-8", interpolate=False)
            self._values |= _our_values(in_file, fields, str(env_file))
        self._values |= _our_values(os.environ, fields, "the environment")

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """See `PydanticBaseSettingsSource`."""
        return self._values.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        """Text by field name."""
        return dict(self._values)


def _our_values(
    variables: Mapping[str, str | None], fields: frozenset[str], place: str
) -> dict[str, str]:
    """Return field name → text for our keys among `variables`; empty values count as absent."""
    valid = {PREFIX + name.upper(): name for name in fields}
    values = {}
    for key, value in variables.items():
        upper = key.upper()
        if _KUBERNETES_LINK.fullmatch(upper):
            continue
        if upper in valid:
            if value and not value.startswith(("tcp://", "udp://")):
                values[valid[upper]] = value
            continue
        near = difflib.get_close_matches(upper, valid, n=1, cutoff=_NEAR_MISS)
        if upper.startswith(PREFIX):
            near = near or difflib.get_close_matches(upper, valid, n=1, cutoff=0.0)
        elif not near:
            continue
        raise ConfigError(
            f"{place} sets {key}, which is not a setting",
            how_to_fix=f"did you mean {near[0]}? All settings are in docs/settings.md",
        )
    return values
