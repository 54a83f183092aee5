"""The models AICB's shell scripts know by `-m`, as its scripts have them: the table `presets.txt`."""

from collections import defaultdict
from collections.abc import Mapping

from simcore.errors import InputError, closest
from simcore.library import table

Values = Mapping[str, int | str | bool | None]
_COLUMNS = ("num_layers", "hidden_size", "num_attention_heads", "ffn_hidden_size", "vocab_size")

PRESETS: dict[str, dict[str, Values]] = defaultdict(dict)
"""Framework -> size -> the options it stands for."""
MODELS: dict[str, dict[str, str]] = defaultdict(dict)
"""Framework -> size -> the model as published, not AICB's approximation of it."""
for _frame, _size, _published, _name, *_numbers, _others in table(__file__, "presets.txt"):
    _said = dict(zip(_COLUMNS, _numbers, strict=True)) | dict(each.partition("=")[::2] for each in _others.split())
    _values = {key: int(value) if value else True for key, value in _said.items() if "-" not in (key, value)}
    PRESETS[_frame][_size] = {"model_name": _name, **_values}
    MODELS[_frame][_size] = _published


def preset(frame: str, size: str) -> Values:
    """Options of `-m SIZE`; InputError names the sizes there are."""
    known = PRESETS[frame]
    plain = size.removeprefix("deepseek").removeprefix("DeepSeek").removesuffix("B")
    if plain not in known:
        message = f"AICB has no such {frame} model"
        raise InputError.at("--model_size", message, expected=closest(size, known), found=size)
    return known[plain]
