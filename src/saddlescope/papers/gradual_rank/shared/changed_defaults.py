"""Parameters whose subclasses change defaults."""

import dataclasses
from typing import Any

from saddlescope.reproduction import EntryParams


class AdaptableParams(EntryParams):
    """Parameters whose subclasses name inherited fields with other defaults: `class Small(Training, depth=2)`.

    Descriptions, bounds and all else stay as inherited.
    """

    def __init_subclass__(cls, **defaults: object) -> None:
        inherited = {name: cls.__dataclass_fields__[name] for name in defaults}
        for name, value in defaults.items():
            setattr(cls, name, dataclasses.field(default=value, metadata=inherited[name].metadata))
        cls.__annotations__ = {name: field.type for name, field in inherited.items()} | cls.__annotations__
        super().__init_subclass__()

    def only(self, *names: str) -> dict[str, Any]:
        """Return the values of some fields by name."""
        return {name: getattr(self, name) for name in names}
