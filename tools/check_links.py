"""Checks that the relative links in Markdown files name existing files, and that their #anchors name existing headings.

usage: check_links.py FILE.md...
"""

import functools
import os
import re
import sys

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")


def read(path):
    with open(path, encoding="utf-8") as file:
        return FENCE.sub("", file.read())


def slug(heading):
    """Returns the anchor of a heading: lower case, without punctuation, with hyphens for blanks."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@functools.cache
def anchors(path):
    return {slug(h) for h in re.findall(r"^#+\s+(.*)$", read(path), re.MULTILINE)}


def broken_links(path):
    for match in LINK.finditer(CODE.sub("", read(path))):
        link = match.group(1) or match.group(2)
        if re.match(r"[a-z]+:", link):
            continue  # on another site: this check does not use the network
        target, _, anchor = link.partition("#")
        file = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
        if not os.path.exists(file):
            yield link, "no such file"
        elif anchor and file.endswith(".md") and anchor not in anchors(file):
            yield link, "no such heading"


def main():
    bad = [(path, *found) for path in sys.argv[1:] for found in broken_links(path)]
    for path, link, why in bad:
        print(f"{path}: {link}: {why}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
