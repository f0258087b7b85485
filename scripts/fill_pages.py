"""Insert result files into the README and the pages of docs/, each after a comment that names the file.

    python scripts/fill_pages.py [--check]

A page contains ``<!-- results/full/table1/table1.md -->`` where the content of the file is inserted. Earlier content
after that comment, up to ``<!-- end -->``, is replaced. ``--check`` changes nothing and fails if a page is out of date.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARK = re.compile(r"<!-- (results/[\w./-]+) -->\n(?:(?:(?!<!-- results/).)*?<!-- end -->\n)?", re.S)


def filled(text: str) -> str:
    """A page's text with every named file in place."""

    def block(match: re.Match[str]) -> str:
        content = (ROOT / match[1]).read_text(encoding="utf-8").strip()
        if match[1].endswith(".txt"):
            content = f"```text\n{content}\n```"
        return f"<!-- {match[1]} -->\n\n{content}\n\n<!-- end -->\n"

    return MARK.sub(block, text)


def main() -> int:
    """Fill or check all pages."""
    stale = []
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = page.read_text(encoding="utf-8")
        if filled(text) != text:
            stale.append(page.name)
            if "--check" not in sys.argv:
                page.write_text(filled(text), encoding="utf-8")
    print(("out of date: " if "--check" in sys.argv else "filled: ") + (", ".join(stale) or "none"))
    return int("--check" in sys.argv and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
