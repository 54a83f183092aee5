"""The training loops of ASTRA-sim 1.0 as coroutines: what an NPU computes, issues and waits for, in which order."""

from __future__ import annotations

FWD, IG, WG = PHASES = ("fwd", "ig", "wg")


class Loops:
    """The loop called `name`; `words` are the others of the header, `layers` have (compute, type, size) by phase."""

    def loop(self, npu):
        """What an NPU does."""
        loops = {"MICRO": self._micro, "DATA": self._data, "DISTRIBUTED_INFERENCE": self._inference}
        loops |= {"HYBRID_DLRM": self._dlrm, "HYBRID_DLRM_ENHANCED": self._dlrm}
        for _ in range(self.passes):
            yield from loops.get(self.name, self._model)(npu)
            if self.name not in {"MICRO", "DISTRIBUTED_INFERENCE"}:
                npu.passes.append(npu.now)
                yield from npu.step()

    @property
    def _policy(self):
        return self.system["scheduling-policy"]

    def _micro(self, npu):
        yield from npu.issue(0, WG, self._policy)

    def _forward(self, npu, i):
        yield from npu.wait(i, WG)
        yield from npu.compute(i, FWD)
        yield from npu.issue(i, FWD, self._policy, blocking=True)
        yield from npu.step()

    def _inference(self, npu):
        for i in range(len(self.layers)):
            yield from self._forward(npu, i)

    def _data(self, npu):
        for i in range(len(self.layers)):
            yield from npu.wait(i, WG)
            yield from npu.compute(i, FWD)
            yield from npu.step()
        for i in reversed(range(len(self.layers))):
            yield from npu.compute(i, WG)
            yield from npu.issue(i, WG, self._policy)
            if i:
                yield from npu.step()
                yield from npu.compute(i, IG)
                yield from npu.step()

    def _dlrm(self, npu):
        bottom = int(self.words[0])
        for i, layer in enumerate(self.layers):
            yield from npu.wait(i, WG)
            yield from npu.compute(i, FWD)
            if layer[FWD][1] == "ALLTOALL":
                yield from npu.issue(i, FWD, "HIGHEST")
            elif i == bottom:
                yield from npu.wait(0, FWD)
            yield from npu.step()
        for i in reversed(range(len(self.layers))):
            yield from npu.compute(i, WG)
            yield from npu.issue(i, WG, self._policy)
            if self.name == "HYBRID_DLRM":
                yield from npu.wait(i, IG)
            if i:
                yield from npu.step()
                yield from npu.compute(i, IG)
                if i == bottom + 1:
                    yield from npu.issue(0, IG, "HIGHEST")
                yield from npu.step()

    def _model(self, npu):
        for i in range(len(self.layers)):
            yield from self._forward(npu, i)
        i, initiators = len(self.layers) - 1, set(self._listed("checkpoint_initiates:"))
        while i >= 0:
            if i in initiators:
                initiators.discard(i)
                yield from npu.step()
                i = yield from self._recompute(npu, i, initiators)
            yield from npu.compute(i, IG)
            if i or self.name.startswith("HYBRID_TRANSFORMER"):
                yield from npu.issue(i, IG, "LIFO")
            yield from npu.step()
            yield from npu.compute(i, WG)
            if self.name != "MODEL":
                yield from npu.issue(i, WG, "FIFO")
            yield from npu.wait(i, IG)
            if i:
                yield from npu.step()
            i -= 1

    def _recompute(self, npu, i, initiators):
        """From the nearest checkpoint up to the next layer that initiates; returns that."""
        layer = max(each for each in self._listed("checkpoints:") if each <= i)
        while True:
            yield from self._forward(npu, layer)
            layer += 1
            if layer in self._listed("checkpoint_initiates:"):
                initiators.discard(layer)
                return layer

    def _listed(self, key):
        if key not in self.words:
            return []
        at = self.words.index(key) + 2
        return list(map(int, self.words[at : at + int(self.words[at - 1])]))
