"""The live page's toys in a headless Chromium: seconds until a picture is shown.

Of each toy: the first visit of a server with an empty cache of compiled code, another visit, and every slider moved to
other places, one at a time, once warm. The time runs from the request or the key to the picture in the page, as a user
waits for it. There is no peer: the bars are 2 s for a visit and 1 s for a slider.

    python benchmarks/live_page.py [--quick]
"""

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from board import Board, play

TOYS = ("scale", "leaving", "concepts", "escape", "attention")
SWITCHES = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
PLACES = ("PageUp", "PageUp", "ArrowRight", "PageDown", "ArrowLeft")
PATIENCE = 120_000  # milliseconds


def main(board: Board) -> None:
    """Measure every toy."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or sys.exit("This benchmark needs a Chromium: apt-get install chromium.")

    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        own = dict.fromkeys(("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"), home)
        server = subprocess.Popen(
            [sys.executable, "-m", "saddlescope", "explore", "--results", f"{home}/results"],
            stdout=subprocess.PIPE, text=True, env=os.environ | own,
        )  # fmt: skip
        browser = playwright.chromium.launch(executable_path=chromium, args=list(SWITCHES))
        try:
            assert server.stdout is not None
            address = re.findall(r"http://\S+", server.stdout.readline())[0].rstrip("/")
            for toy in TOYS[:1] if board.quick else TOYS:
                first, again = (visit(browser, f"{address}/entry/toys/{toy}") for _ in range(2))
                page = again[1]
                moved = {name: moves(page, name) for name in sliders(page)}
                slowest = max(moved, key=lambda name: max(moved[name]))
                every = [seconds for times in moved.values() for seconds in times]
                board.report(toy, "first visit", "until the picture", first[0], "s", "an empty cache of compiled code")
                board.report(toy, "another visit", "until the picture", again[0], "s")
                board.report(toy, "slider", "until the picture, median", statistics.median(every), "s")
                board.report(toy, "slider", "until the picture, slowest", max(every), "s", slowest)
                print(
                    f"{toy:10} first visit {first[0]:.2f} s, another {again[0]:.2f} s; {len(every)} moves of "
                    f"{len(moved)} sliders: median {statistics.median(every):.2f} s, slowest {max(every):.2f} s "
                    f"({slowest})", flush=True,
                )  # fmt: skip
                for _, opened in (first, again):
                    opened.close()
        finally:
            browser.close()
            server.terminate()
            server.wait()


def visit(browser, address: str):
    """Open a page; return the seconds until its picture, and the page."""
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    began = time.perf_counter()
    page.goto(address)
    page.wait_for_selector(".explore[data-shown] .plot .main-svg")
    return time.perf_counter() - began, page


def sliders(page) -> list[str]:
    """Names of the parameters that have a slider."""
    return page.evaluate(
        "() => [...document.querySelectorAll('[data-name]')].filter(one => one.querySelector('.slide'))"
        ".map(one => one.dataset.name)"
    )


def moves(page, name: str) -> list[float]:
    """Seconds from each key pressed on a slider until another picture, where the key moves it."""
    slider = page.locator(f"[data-name={name}] .slide")
    slider.focus()
    times = []
    for key in PLACES:
        value, shown = slider.input_value(), page.evaluate("document.querySelector('.explore').dataset.shown")
        began = time.perf_counter()
        page.keyboard.press(key)
        if slider.input_value() == value:
            continue
        page.wait_for_function("before => document.querySelector('.explore').dataset.shown !== before", arg=shown)
        times.append(time.perf_counter() - began)
    return times


if __name__ == "__main__":
    play(main)
