#!/usr/bin/env python3
"""Records the demonstration as an animated picture: docs/images/record.py PROGRAM > docs/images/demo.svg.

Runs `PROGRAM demo --once` and draws a terminal with what it prints, line by line at a pace that people can read: fifteen
seconds in all, again and again. The demonstration itself takes a second or two. The picture begins with its end, and
everything is shown where nothing moves: without CSS or animations, with reduced motion, in a preview of the first frame.
"""

import html
import subprocess
import sys

COMMAND = "uvx toolrein demo"
LENGTH, TYPED, FIRST_LINE, LAST_LINE, BEGIN = 15.0, 1.2, 1.8, 11.0, 11.2
COLUMNS, LINE, LETTER, MARGIN, TOP = 98, 19, 8.4, 16, 48
# What a person should see first: how runs ended.
COLOURS = [("gave up after 25 calls", "bad"), ("refused (HTTP 400)", "bad"), ("answered", "good")]


def record(program):
    """The lines that the demonstration prints."""
    command = [program, "demo", "--once", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    shown = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return shown.stdout.strip().splitlines()


def coloured(line):
    """The line as text spans: the last outcome in its colour, and what policies did in grey."""
    if line.startswith(" " * 20 + "by "):
        return f'<tspan class="dim">{html.escape(line)}</tspan>'
    if line.startswith("toolrein: "):
        return f'<tspan class="sum">{html.escape(line)}</tspan>'
    for words, colour in COLOURS:
        before, found, after = line.rpartition(words)
        if found and not after.strip().isalpha() and "->" not in line:
            return f'{html.escape(before)}<tspan class="{colour}">{html.escape(found)}</tspan>{html.escape(after)}'
    return html.escape(line)


def main():
    lines = record(sys.argv[1])
    pace = (LAST_LINE - FIRST_LINE) / (len(lines) - 1)
    width, height = int(COLUMNS * LETTER + 2 * MARGIN), TOP + (len(lines) + 1) * LINE + MARGIN
    styles, moving, texts = [], [], []

    def at(row, content, seconds, name):
        share = 100 * seconds / LENGTH
        styles.append(f"@keyframes {name}{{0%,{share:.2f}%{{opacity:0}}{share + 0.01:.2f}%,100%{{opacity:1}}}}")
        moving.append(f"#{name}{{animation-name:{name}}}")
        texts.append(f'<text id="{name}" x="{MARGIN}" y="{TOP + row * LINE}" xml:space="preserve">{content}</text>')

    for nth in range(len(COMMAND) + 1):
        # The command as it is typed, letter by letter: each state covers the one before it.
        share = 100 * (0.2 + TYPED * nth / (len(COMMAND) + 1)) / LENGTH
        until = 100 * (0.2 + TYPED * (nth + 1) / (len(COMMAND) + 1)) / LENGTH
        last = nth == len(COMMAND)
        hidden = "100%{opacity:1}" if last else f"{until:.2f}%{{opacity:1}}{until + 0.01:.2f}%,100%{{opacity:0}}"
        styles.append(f"@keyframes t{nth}{{0%,{share:.2f}%{{opacity:0}}{share + 0.01:.2f}%,{hidden}}}")
        moving.append(f"#t{nth}{{animation-name:t{nth}}}")
        cursor = "" if last else '<tspan class="dim">&#9608;</tspan>'
        text = f'<tspan class="good">$</tspan> {COMMAND[:nth]}{cursor}'
        still = "" if last else ' opacity="0"'
        texts.append(f'<text id="t{nth}" x="{MARGIN}" y="{TOP}"{still} xml:space="preserve">{text}</text>')
    for nth, line in enumerate(lines):
        at(nth + 1, coloured(line), FIRST_LINE + nth * pace, f"l{nth}")
    moving.append(f"text{{animation-duration:{LENGTH:g}s;animation-iteration-count:infinite;animation-delay:-{BEGIN:g}s}}")
    motion = f"@media (prefers-reduced-motion:no-preference){{{''.join(moving)}}}"
    print(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">\n'
        f"<title>{COMMAND}: runaway agents, directly and through toolrein</title>\n"
        "<style>text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#d6deeb}"
        ".good{fill:#7ee787}.bad{fill:#ff7b72}.dim{fill:#8b949e}.sum{fill:#fff;font-weight:bold}"
        f"{''.join(styles)}{motion}</style>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>\n'
        '<circle cx="20" cy="18" r="5" fill="#ff5f57"/><circle cx="38" cy="18" r="5" fill="#febc2e"/>'
        '<circle cx="56" cy="18" r="5" fill="#28c840"/>\n' + "\n".join(texts) + "\n</svg>"
    )


main()
