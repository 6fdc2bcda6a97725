"""Settings of other toolkits' models: those that asrkit computes with, and harmless ones."""

from typing import Annotated, Any, ClassVar, TypeVar

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from asrkit.config.error_messages import explained
from asrkit.interop.checkpoint import CheckpointError

Size = Annotated[int, Field(ge=1, le=1 << 20)]


class Part(BaseModel):
    """A section of the settings. A value that asrkit does not have, or an unknown key, is rejected.

    A key whose default asrkit does not have is required.
    """

    model_config = ConfigDict(strict=True, extra="forbid")

    # Keys that change no number of the model: training, and other ways to compute the same.
    IGNORED: ClassVar[str] = ""

    @pydantic.model_validator(mode="before")
    @classmethod
    def _without_ignored(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {key: values[key] for key in values if key not in cls.IGNORED.split()}


Settings = TypeVar("Settings", bound=Part)


def parse(kind: type[Settings], values: dict[str, Any], name: str) -> Settings:
    """Parse the settings of the file `name`. Raises CheckpointError for those of another model."""
    try:
        return kind.model_validate(values)
    except pydantic.ValidationError as error:
        raise CheckpointError(f"{name}: " + explained(error, {}).splitlines()[0]) from None
