"""Text from others for a terminal: control characters are shown escaped, so that none is obeyed."""

import json
import re

# Controls but line break and tab; marks that reorder text, separate lines or are invisible; lone surrogates.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    r"""Return a text with control characters escaped, except line breaks and tabs.

    >>> print(visible("\x1b[31mred\u202e"))
    \x1b[31mred\u202e
    """
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def visible_json(text: str) -> str:
    r"""Return a JSON text with control characters escaped, which is the same value.

    >>> print(visible_json('"\x9b\u202e"'))
    "\u009b\u202e"
    """
    return _CONTROLS.sub(lambda found: json.dumps(found[0])[1:-1], text)
