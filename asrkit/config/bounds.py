"""The types of settings, with their limits."""

import os
from typing import Annotated, Any, Literal

import pydantic
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WrapValidator
from pydantic_core import PydanticCustomError

# Not strict, because YAML reads 1e-3 as a string.
Number = Annotated[float, Field(strict=False, allow_inf_nan=False)]
Share = Annotated[float, Field(strict=False, ge=0.0, le=1.0)]
ShareAboveZero = Annotated[Share, Field(gt=0.0)]
Positive = Annotated[int, Field(ge=1, le=1_000_000)]
Count = Annotated[int, Field(ge=0, le=1_000_000_000)]


def _number_or_auto(value: Any, check: pydantic.ValidatorFunctionWrapHandler) -> Any:
    """Check a number or "auto" with one message, where a union has a message for each part."""
    try:
        return check(value)
    except pydantic.ValidationError as error:
        reason = error.errors()[0]["msg"] + ', or "auto"' * isinstance(value, str)
        raise PydanticCustomError("number_or_auto", "{reason}", {"reason": reason}) from None


AutoOrOff = Annotated[  # YAML reads an off without quotes as false
    Literal["auto", "off"], BeforeValidator(lambda value: "off" if value is False else value)
]
PositiveOrAuto = Annotated[Positive | Literal["auto"], WrapValidator(_number_or_auto)]

# Chunks and left contexts of minutes are far above useful values. Larger ones would let a model
# file of a few megabytes demand gigabytes of memory.
MOST_FRAMES = 3000
ChunkSize = Annotated[int, Field(ge=1, le=MOST_FRAMES)]
LeftContext = Annotated[int, Field(ge=0, le=MOST_FRAMES)]
RightContext = Annotated[int, Field(ge=0, le=1024)]
Place = Annotated[str, Field(pattern=r"^[^\x00]*$"), AfterValidator(os.path.expanduser)]
Places = Annotated[
    list[Place],
    Field(max_length=256),
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
]
PositiveNumber = Annotated[float, Field(strict=False, gt=0.0, allow_inf_nan=False)]
NumberFromZero = Annotated[Number, Field(ge=0.0)]
Decibels = Annotated[Number, Field(ge=-100.0, le=100.0)]
Speed = Annotated[Number, Field(ge=0.1, le=10.0)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
