"""mkdocs hooks: links out of docs/ lead to files that the site does not have; there they are words. Paths in tables may
break after a dot. A picture leads to itself at its own size, for small screens.
"""

import re


def on_page_markdown(markdown: str, **_: object) -> str:
    """`[words](../path)` becomes words."""
    return re.sub(r"\[([^\]]+)\]\((?:\.\./|bench\))[^)]*\)?", r"\1", markdown)


def on_page_content(html: str, **_: object) -> str:
    """`spec.rollout.checks` in a cell gets a place to break after each dot; pictures get a link."""
    html = re.sub(r"<td.*?</td>", lambda cell: cell[0].replace(r"\|", "|"), html)  # GitHub wants the backslash
    html = re.sub(r"(?<=<td><code>)[\w.\[\]]+(?=</code>)", lambda name: name[0].replace(".", ".<wbr>"), html)
    return re.sub(r'<img\b[^>]* src="([^"]+)"[^>]*>', r'<a href="\1">\g<0></a>', html)
