"""mkdocs hook: links out of docs/ lead to files that the site does not have; there they are words."""

import re


def on_page_markdown(markdown: str, **_: object) -> str:
    """`[words](../path)` becomes words."""
    return re.sub(r"\[([^\]]+)\]\((?:\.\./|bench\))[^)]*\)?", r"\1", markdown)
