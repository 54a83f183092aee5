"""Which experts each token goes to: models of the routing, and arrays given by the user.

A routing array has shape [choice, sequence, position]; no token visits an expert twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import log, sqrt
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from simcore.documents import location_of, read_text
from simcore.errors import InputError, Location
from simcore.generate.wse.settings import Ints
from simcore.model.shape import Experts, Model

MOST_TOKENS, MOST_ROUTED = 1 << 44, 1 << 26
Routing = dict[str, Ints]
SEED = 42
TOKENS_AT_ONCE = 1 << 15
# Spread of the tokens per expert measured on MMLU with DeepSeek-V3: coefficient of variation 0.34 to 1.05 by layer.
VARIATION = 0.55


def draw(
    model: Model, routing: str, shape: tuple[int, int], step: int, counts: Ints | None = None, seed: int = SEED
) -> Routing:
    """The routing of every expert layer of one step, "decode{layer}_moe" -> array [choice, sequence, position]; layers
    are drawn even when they are not asked for.

    `routing` is "identical", "uniform" or "empirical_mmlu": from `counts`, the tokens seen per expert, of shape [expert
    layers, experts], else a log-normal substitute. `shape` is (sequences, positions). The number of the step seeds the
    generator together with `seed` and the layer.
    """
    experts = model.experts
    if experts is None:
        return {}
    if shape[0] * shape[1] > MOST_ROUTED:
        found = f"{shape[0]:,} sequences of {shape[1]:,} new positions"
        raise InputError.at("--bsz", "too many tokens to route", expected=f"at most {MOST_ROUTED:,}", found=found)
    if routing == "identical":
        return _identical(model, experts, shape, step, seed)
    arrays = {}
    for place, layer in enumerate(expert_layers(model)):
        if routing == "uniform":
            weights = np.ones(experts.count)
        elif counts is not None:
            weights = np.asarray(counts[place], np.float64)
        else:
            sigma = sqrt(log(1 + VARIATION**2))
            weights = np.random.default_rng([SEED, place]).lognormal(0.0, sigma, experts.count)
        generator = np.random.default_rng([seed, step, layer])
        arrays[f"decode{layer}_moe"] = _sample(generator, weights, experts.top_k, shape)
    return arrays


def expert_layers(model: Model) -> list[int]:
    """The layers that route, ascending."""
    return [layer for layer in range(model.layers) if not model.dense(layer)]


def _sample(generator: np.random.Generator, weights: NDArray[np.float64], top_k: int, shape: tuple[int, int]) -> Ints:
    """`top_k` different experts per token, one after the other by weight (Gumbel top-k, arXiv 1903.06059)."""
    tokens = shape[0] * shape[1]
    with np.errstate(divide="ignore"):
        logits = np.log(weights)
    chosen = np.empty((tokens, top_k), np.int64)
    for first in range(0, tokens, TOKENS_AT_ONCE):
        last = min(first + TOKENS_AT_ONCE, tokens)
        keys = logits - np.log(generator.exponential(size=(last - first, len(weights))))
        best = np.argpartition(-keys, top_k - 1, axis=1)[:, :top_k]
        order = np.argsort(-np.take_along_axis(keys, best, 1), axis=1)
        chosen[first:last] = np.take_along_axis(best, order, 1)
    return np.ascontiguousarray(chosen.T).reshape(top_k, *shape)


def _identical(model: Model, experts: Experts, shape: tuple[int, int], step: int, seed: int) -> Routing:
    """Every expert gets equally many tokens; all layers of a step share one array, as in the peer."""
    visits = experts.top_k * shape[0] * shape[1]
    if visits % experts.count:
        message, found = "identical routing needs equally many tokens for every expert", (experts.top_k, *shape)
        expected = f"num_experts_per_tok * batch * positions divisible by n_routed_experts = {experts.count}"
        raise InputError.at("--bsz", message, expected=expected, found=" * ".join(map(str, found)))
    layers = expert_layers(model)
    rounds = visits // experts.count
    if experts.top_k == 1:  # the peer shuffles its list in place once per layer: every layer sees the last shuffle
        shuffler = np.random.RandomState(seed)
        for _ in range(step + 1):
            flat = np.repeat(np.arange(experts.count), rounds)
            for _ in layers:
                shuffler.shuffle(flat)
    else:  # permutations of all experts, one after the other: `top_k` neighbours never repeat an expert
        generator = np.random.default_rng([seed, step])
        # Where `top_k` does not divide the number of experts, a token may straddle two rounds; then all are alike.
        alike = 1 if experts.count % experts.top_k == 0 else rounds
        flat = np.tile([generator.permutation(experts.count) for _ in range(rounds // alike)], alike).ravel()
    array = flat.reshape(-1, experts.top_k).T.reshape(experts.top_k, *shape)
    return {f"decode{layer}_moe": array for layer in layers}


def _decoded(path: str | Path, form: Any) -> Any:
    """A JSON file of some form; InputError with line and column where the decoder tells a byte."""
    text = read_text(path)
    try:
        return msgspec.json.decode(text, type=form)
    except msgspec.ValidationError as error:
        expected = "lists of numbers, as docs/wafer.md says for this option"
        raise InputError.at(
            Location(str(path), 1, 1), f"not a file of this form: {error}", expected=expected
        ) from error
    except msgspec.MsgspecError as error:
        head, _, offset = str(error).partition("(byte ")
        data = text.encode()
        before = data[: int(offset.rstrip(")")) if offset else len(data)].decode(errors="ignore")
        place = location_of(text, len(before), str(path))
        raise InputError.at(place, f"not well-formed: {head.strip()}", expected="JSON") from error


class _Recorded(msgspec.Struct):
    """What SGLang's recorder of experts writes: tokens by [layer][expert], or by [pass][layer][expert]."""

    logical_count: list[list[float | list[float]]]

    def rows(self, model: Model, start: Location) -> list[list[float]]:
        """Of the expert layers, where all layers are there; of all passes together."""
        try:
            array = np.array(self.logical_count, np.float64)
        except ValueError as error:
            raise InputError.at(start, "logical_count has rows of several lengths", expected="one length") from error
        layers = array.sum(axis=0) if array.ndim == 3 else array
        found: list[list[float]] = layers[expert_layers(model) if len(layers) == model.layers else slice(None)].tolist()
        return found


def read_counts(path: str | Path, model: Model) -> Ints:
    """Tokens per expert from a JSON list of lists [expert layer][expert], or a mapping of "0", "1", .. to lists, as the
    WSE generator's `bincounts.json` is, or SGLang's `logical_count`; InputError when the file is not of that form, or a
    layer has fewer than `num_experts_per_tok` experts with tokens.
    """
    if model.experts is None:
        raise InputError.at("--expert-counts", "this model has no experts")
    start = Location(str(path), 1, 1)
    if '"logical_count"' in read_text(path):
        counts = _decoded(path, _Recorded).rows(model, start)
    else:
        given = _decoded(path, list[list[float]] | dict[str, list[float]])
        counts = given if isinstance(given, list) else [given.get(str(place), []) for place in range(len(given))]
    shape = (len(expert_layers(model)), model.experts.count)
    found = sorted({len(layer) for layer in counts})
    if (len(counts), *found) != shape:
        expected = f"{shape[0]} lists of {shape[1]} counts"
        held = f"{len(counts)} lists of {', '.join(map(str, found)) or 'nothing'}"
        raise InputError.at(start, "the counts do not fit the model", expected=expected, found=held)
    if max(map(max, counts), default=0) >= MOST_TOKENS:
        expected = f"fewer than {MOST_TOKENS:,} of an expert"
        raise InputError.at(start, "more tokens than can be counted", expected=expected)
    array = np.array(counts).astype(np.int64)
    if (array != np.array(counts)).any():
        raise InputError.at(start, "counts are not whole", expected="tokens of each expert")
    if array.min() < 0:
        raise InputError.at(start, "a count is negative", expected="tokens of each expert", found=str(array.min()))
    if ((array > 0).sum(axis=1) < model.experts.top_k).any():
        raise InputError.at(start, "too few experts have tokens", expected=f"at least {model.experts.top_k} a layer")
    return array


def read_routing(path: str | Path, model: Model, batch: int, steps: Mapping[str, int]) -> dict[str, Routing]:
    """Routing arrays of a JSON file {step: {"decode{layer}_moe": [choice][sequence][position]}}.

    `steps` gives the positions per step that may appear. Every problem names the step and the layer.
    """
    document, start = _decoded(path, dict[str, dict[str, list[list[list[int]]]]]), Location(str(path), 1, 1)

    def refuse(field: str, message: str, expected: str, found: str) -> InputError:
        return InputError.at(start, f"{field}: {message}", expected=expected, found=found, field=field)

    names = {f"decode{layer}_moe" for layer in expert_layers(model)}
    for step, layers in document.items():
        if step not in steps:
            raise refuse(step, "there is no such step in this run", f"one of {', '.join(steps)}", repr(step))
        for layer in layers:
            if layer not in names:
                raise refuse(f"{step}.{layer}", "there is no such expert layer", "decode{layer}_moe", repr(layer))
    return {
        step: {
            layer: _checked(array, model.experts, (batch, steps[step]), partial(refuse, f"{step}.{layer}"))
            for layer, array in layers.items()
            if model.experts  # without them no layer is known above
        }
        for step, layers in document.items()
    }


Refuse = Callable[[str, str, str], InputError]


def _checked(nested: list[list[list[int]]], experts: Experts, shape: tuple[int, int], refuse: Refuse) -> Ints:
    """One routing array, checked against the model: shape, numbers of experts, no expert twice."""
    expected = (experts.top_k, *shape)
    try:
        array = np.array(nested, dtype=np.int64)
    except OverflowError:
        raise refuse("no such expert", f"0 ... {experts.count - 1}", "a number of more than 64 bits") from None
    except ValueError:
        raise refuse("the lists differ in length", f"shape {expected}", "a ragged list") from None
    if array.shape != expected:
        said = f"{expected} = [choice, sequence, position]"
        raise refuse("the routing has another shape", said, str(array.shape))
    if array.size and not 0 <= array.min() <= array.max() < experts.count:
        raise refuse("no such expert", f"0 ... {experts.count - 1}", f"{array.min()} ... {array.max()}")
    ordered = np.sort(array, axis=0)
    if (ordered[1:] == ordered[:-1]).any():
        raise refuse("a token visits an expert twice", "different experts per token", "a repeated number")
    return array
