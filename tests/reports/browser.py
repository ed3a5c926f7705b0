# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, what a page left in it, and the pixels that it draws."""

import collections
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile
import zlib

SKIPPED = 77
CHROMIUM = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)


# Behind a page's own scripts and the probe: of the page only <html> is looked at, and its traces are most of it.
WITHOUT_SCRIPTS = """
<script>
window.addEventListener('load', () => document.querySelectorAll('script').forEach((script) => script.remove()));
</script>
"""


def chromium(*arguments):
    with tempfile.TemporaryDirectory() as profile:
        command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
                   "--disable-background-networking", f"--user-data-dir={profile}", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=240, check=True).stdout


def attributes(page, probe):
    """The data-* attributes that the page left on <html>."""
    with tempfile.TemporaryDirectory() as folder:
        probed = pathlib.Path(folder) / "probed.html"
        probed.write_text(page.read_text() + probe + WITHOUT_SCRIPTS)
        dom = chromium("--window-size=1400,1200", "--timeout=60000", "--dump-dom", probed.as_uri())
    element = re.search(r"<html[^>]*>", dom).group(0)
    return dict(re.findall(r'data-([a-z-]+)="([^"]*)"', element))


def pixels(png):
    """Rows of RGB bytes of an 8-bit PNG without interlacing, which is what Chromium writes."""
    data = png.read_bytes()
    at, packed = 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", body[:10])
        elif kind == b"IDAT":
            packed += body
        at += 12 + length
    assert depth == 8 and colour in (2, 6)
    size = 3 if colour == 2 else 4
    raw, rows, above = zlib.decompress(packed), [], bytes(width * size)
    for y in range(height):
        start = y * (width * size + 1)
        above = unfilter(raw[start], raw[start + 1:start + 1 + width * size], above, size)
        rows.append(above)
    return rows, size


def unfilter(kind, line, above, size):
    if kind == 0:
        return line
    if kind == 2:
        return bytes([(byte + up) & 255 for byte, up in zip(line, above)])
    out = bytearray(len(line))
    for channel in range(size):
        of_channel, left, corner = [], 0, 0
        for byte, up in zip(line[channel::size], above[channel::size]):
            if kind == 1:
                guess = left
            elif kind == 3:
                guess = (left + up) // 2
            else:
                to_left, to_up, to_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
                guess = left if to_left <= to_up and to_left <= to_corner else up if to_up <= to_corner else corner
            left, corner = (byte + guess) & 255, up
            of_channel.append(left)
        out[channel::size] = bytes(of_channel)
    return bytes(out)


def colours(page, width=1100, height=900, dark=False):
    """How often each colour stands on the page's first screen, by "rrggbb"; dark: where the system is."""
    picture = page.with_suffix(".png")
    chromium(*(["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if dark else []), f"--window-size={width},{height}", "--timeout=5000", f"--screenshot={picture}", page.as_uri())
    rows, size = pixels(picture)
    counts = collections.Counter()
    for row, times in collections.Counter(rows).items():
        for colour, count in collections.Counter(zip(row[::size], row[1::size], row[2::size])).items():
            counts[bytes(colour).hex()] += times * count
    return counts
