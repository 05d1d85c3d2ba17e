"""Types into `keyhush predict` in a terminal of its own and draws what it shows, moment by moment: typing.svg.

Usage: keystrokes.py KEYHUSH MODEL OUT. Needs pyte, a terminal in memory; typing.sh installs it.
"""

import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time
from html import escape

import pyte

COLUMNS, ROWS = 96, 12
# What is typed, and when the screen is drawn: after each piece. A tab takes the first suggestion.
PIECES = ["See yo", "u tom", "\t", "at 7, o", "k?"]


def moments(keyhush, model):
    """The line and its suggestions after each piece."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(keyhush, [keyhush, "predict", "--model", model])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)

    def read(seconds):
        until = time.time() + seconds
        while time.time() < until:
            if select.select([terminal], [], [], 0.05)[0]:
                stream.feed(os.read(terminal, 1 << 16))

    read(2)
    for piece in PIECES:
        for key in piece:
            os.write(terminal, key.encode())
            read(0.3)
        lines = [line.rstrip() for line in screen.display]
        typed = max(number for number, line in enumerate(lines) if line.startswith("> ") or line == ">")
        yield lines[typed], lines[typed + 1]
    os.write(terminal, b"\x1b")


def drawn(shown):
    """A picture that is readable on light and on dark pages."""
    height = 24 + 52 * len(shown)
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 {height}" font-family="ui-monospace, monospace" font-size="15">'
    yield f'<rect width="640" height="{height}" rx="8" fill="#16202b"/>'
    for number, (line, suggestions) in enumerate(shown):
        y = 34 + 52 * number
        yield f'<text x="20" y="{y}" fill="#f2f5f7" xml:space="preserve">{escape(line)}<tspan fill="#6fb7ff">▏</tspan></text>'
        yield f'<text x="20" y="{y + 21}" fill="#9fb3c4" xml:space="preserve">{escape(suggestions)}</text>'
    yield "</svg>"


if __name__ == "__main__":
    keyhush, model, out = sys.argv[1:]
    with open(out, "w", encoding="utf-8") as file:
        file.write("\n".join(drawn(list(moments(keyhush, model)))) + "\n")
