"""mkdocs hooks: links out of docs/ lead to files that the site does not have; there they are words. Paths in tables may
break after a dot.
"""

import re


def on_page_markdown(markdown: str, **_: object) -> str:
    """`[words](../path)` becomes words."""
    return re.sub(r"\[([^\]]+)\]\((?:\.\./|bench\))[^)]*\)?", r"\1", markdown)


def on_page_content(html: str, **_: object) -> str:
    """`spec.rollout.checks` in a cell gets a place to break after each dot."""
    return re.sub(r"(?<=<td><code>)[\w.\[\]]+(?=</code>)", lambda name: name[0].replace(".", ".<wbr>"), html)
