"""What a name on a timeline stands for: the table `kinds.txt`, and names as people read them."""

from __future__ import annotations

import re
from functools import cache

from msgspec import Struct

from simcore.library import table

ATTENTION, COMMUNICATION, LOADER, SUSPECTED, OTHER = "attention", "communication", "loader", "suspected", "other"
MANGLED = re.compile(r"_ZN?K?")


class Kind(Struct, frozen=True):
    """A category, and of communication the library."""

    category: str
    library: str = ""


@cache
def _table() -> tuple[tuple[re.Pattern[str], bool, Kind], ...]:
    return tuple(
        (re.compile(pattern, re.IGNORECASE), where == "name", Kind(category, library.strip("-")))
        for category, library, where, pattern in table(__file__, "kinds.txt", 4)
    )


def categories() -> list[str]:
    """The categories of what runs on a device."""
    return sorted({kind.category for _, _, kind in _table()} - {LOADER, SUSPECTED} | {OTHER})


@cache
def kind_of_name(name: str) -> Kind:
    """The first row of the table that fits.

    >>> kind_of_name("void deep_ep::internode::combine<4>(int*)"), kind_of_name("ampere_sgemm_128x64_nn").category
    (Kind(category='communication', library='DeepEP'), 'products')
    """
    places = (f"{name} {plain(name)}", plain(name))
    return next((kind for pattern, short, kind in _table() if pattern.search(places[short])), Kind(OTHER))


@cache
def plain(name: str) -> str:
    """A kernel's name without its result, template arguments and parameters, which hide it; mangled ones are read.

    >>> plain("void cudnn::wgrad<float, 512>(int, float*)"), plain("Memcpy HtoD (Pageable -> Device)")
    ('cudnn::wgrad', 'Memcpy HtoD (Pageable -> Device)')
    >>> plain("_ZN2at6native12fused_kernelIfLi4EEEvT_"), plain("void (anonymous namespace)::softmax<f<4> >(float*)")
    ('at::native::fused_kernel', 'softmax')
    """
    if start := MANGLED.match(name):  # each part behind its length (Itanium C++ ABI, section 5.1)
        rest, parts = name[start.end() :], list[str]()
        while number := re.match(r"[1-9]\d*", rest):
            end = number.end() + int(number[0])
            parts.append(rest[number.end() : end])
            rest = rest[end:]
        return "::".join(part for part in parts if not part.startswith("_GLOBAL__N_")) or name
    shown, before = name.replace("(anonymous namespace)::", ""), ""
    while shown != before:
        shown, before = re.sub(r"<[^<>]*>", "", shown), shown
    bare = re.sub(r"(?<=\w)[<(].*", "", shown)
    return bare.rpartition(" ")[2] if bare != shown or name.startswith("void ") else bare
