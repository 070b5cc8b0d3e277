"""Figures in a notebook: title, picture, caption and table."""

from base64 import b64encode
from html import escape
from io import BytesIO

from saddlescope._shared.reprs import html_table
from saddlescope.plot.figure import Figure
from saddlescope.plot.render_matplotlib import draw_matplotlib

_DPI, _SHOWN = 160, 80  # pixels per inch of the picture, and as it is shown: half as large, for dense screens


def as_png(figure: Figure) -> tuple[str, int]:
    """Return the picture of a figure as PNG in base64, and the width at which it is shown, in pixels."""
    file, drawing = BytesIO(), draw_matplotlib(figure)
    drawing.savefig(file, dpi=_DPI, format="png")
    return b64encode(file.getvalue()).decode("ascii"), round(_SHOWN * drawing.get_figwidth())


def as_html(figure: Figure, picture: str, width: int) -> str:
    """Return a figure as HTML, with its picture as PNG in base64; everything written is escaped."""
    table = "" if figure.table is None else html_table("", figure.table.columns, figure.table.rows)
    title, source = escape(figure.title), f"data:image/png;base64,{picture}"
    return (
        f'<figure style="margin:0"><figcaption><b>{title}</b></figcaption>'
        f'<img src="{source}" alt="{title}" width="{width}" style="max-width:100%">'
        f"<figcaption>{escape(figure.caption)}</figcaption>{table}</figure>"
    )
