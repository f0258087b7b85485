"""A page that was written, inside a notebook."""

from html import escape
from pathlib import Path

__all__ = ["page_in_frame"]

_HEIGHT = 720


def page_in_frame(path: Path) -> str:
    """HTML that shows a page of ours in a frame of its own, which may run the page's script and reach nothing."""
    try:
        page = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return f"<p>{escape(str(path))} is not there any more.</p>"
    style = f"width: 100%; height: {_HEIGHT}px; border: 1px solid #d9dee4; border-radius: 8px"
    return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{escape(page)}"></iframe>'
