"""What every schema of ours is made of: the model, its bounded strings, and CEL rules beside a field."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from island_operator.api import rules

VALIDATIONS, LIST_TYPE, MAP_KEYS = "x-kubernetes-validations", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"

Tokens = Annotated[int, Field(ge=1, le=rules.MOST_TOKENS)]
Requests = Annotated[int, Field(ge=1, le=4096)]


def ruled(*checks: rules.Rule, **more: Any) -> dict[str, Any]:
    """json_schema_extra with CEL rules."""
    return {VALIDATIONS: list(checks), **more}


Pause = Annotated[str, Field(max_length=16, pattern=rules.DURATION, json_schema_extra=ruled(rules.PAUSE))]
Deadline = Annotated[str, Field(max_length=16, pattern=rules.DURATION, json_schema_extra=ruled(rules.DEADLINE))]


SUBDOMAIN = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
LABEL_VALUE = "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
RESOURCE = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"


class Model(BaseModel):
    """Strict, with camelCase names."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True, alias_generator=to_camel)
