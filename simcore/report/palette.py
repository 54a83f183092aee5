"""The colours of every picture, in one place; chosen to stay apart for colour-blind eyes.

Blue means computing, vermillion an NPU that stands still, the others communication. The hues are Okabe and Ito's
(Color Universal Design, 2008), two of Paul Tol's muted scheme (SRON/EPS/TN/09-002, 2021) for further dimensions, and
two that show on white and on black.
"""

from __future__ import annotations

PHASES = ("#0072B2", "#56B4E9", "#004B78")  # forward, input gradient, weight gradient
DIMENSIONS = ("#E69F00", "#CC79A7", "#009E73", "#F0E442", "#882255", "#999933")  # they repeat
FAMILIES = {
    "compute": PHASES[0],
    "host": "#7F8C8D",
    "wait": "#D55E00",
    "collective": "#8C8CB4",
    "message": "#8A2BE2",
    "memory": "#DDCC77",
    "link": "#2F6F6F",
}
BREAKDOWN = {
    "compute_ns": ("compute alone", PHASES[0]),
    "overlapped_ns": ("compute and communication", "#009E73"),
    "exposed_comm_ns": ("exposed communication", FAMILIES["wait"]),
    "idle_ns": ("idle", "#BFBFBF"),
}
INK = "#222222"
HEAT = "cividis_r"  # made for colour-vision deficiency; reversed: what is hot is dark on white paper


def text_on(colour: str) -> str:
    """Black or white, whichever is read more easily on `colour` (#rrggbb).

    >>> text_on("#F0E442"), text_on("#004B78")
    ('#222222', '#ffffff')
    """
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#ffffff"
