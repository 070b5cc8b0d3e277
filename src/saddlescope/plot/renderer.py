"""Drawing of records and results: panels on Matplotlib axes, figures in a notebook."""

from base64 import b64encode
from html import escape
from io import BytesIO

from saddlescope._shared.reprs import html_table
from saddlescope.figures.records import Figure
from saddlescope.plot.axes import draw_on_axes as draw_on_axes
from saddlescope.plot.render_matplotlib import draw_matplotlib

_DPI, _SHOWN = 160, 80  # pixels per inch of the picture, and as it is shown: half as large, for dense screens


def mime_bundle(figure: Figure) -> dict[str, str]:
    """Return a figure as a notebook shows it: title, picture, caption and table; and the picture alone.

    Everything written is escaped; the picture is PNG in base64.
    """
    file, drawing = BytesIO(), draw_matplotlib(figure)
    drawing.savefig(file, dpi=_DPI, format="png")
    picture, width = b64encode(file.getvalue()).decode("ascii"), round(_SHOWN * drawing.get_figwidth())
    table = "" if figure.table is None else html_table("", figure.table.columns, figure.table.rows)
    title, source = escape(figure.title), f"data:image/png;base64,{picture}"
    page = (
        f'<figure style="margin:0"><figcaption><b>{title}</b></figcaption>'
        f'<img src="{source}" alt="{title}" width="{width}" style="max-width:100%">'
        f"<figcaption>{escape(figure.caption)}</figcaption>{table}</figure>"
    )
    return {"text/plain": repr(figure), "text/html": page, "image/png": picture}
