"""Session: a plan at work. Owns the memory that the core walks over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import carry, feed, initial, quant, saving
from . import counters as counting
from ._arrays import Array, integer
from ._core import ffi, lib
from ._spaces import Spaces, aligned
from ._views import Views
from .errors import NonFiniteError, QfwError
from .lower import Op, Tensor
from .plan import Plan, build
from .tensor import QTensor, quantize

_SECTIONS = {
    "forward": lib.QFW_FORWARD,
    "output": lib.QFW_OUTPUT,
    "backward": lib.QFW_BACKWARD,
    "update": lib.QFW_UPDATE,
}
_PROGRESS = [name for name, _ in ffi.typeof("qfw_progress").fields]
_CHANGES = ("loss", "optimizer", "policy", "batch", "micro_batches", "seed", "input_shape")


class Mark(NamedTuple):
    """A session between two steps: the core's own bytes with those that last, and more."""

    data: Array
    has_gradients: bool
    source: dict[str, Array]


class Session(Views):
    """A network that can be stepped, asked and looked into.

    ``step(x, y)`` is ``forward(x)``, ``backward(y)``, ``update()``: the same operations, so the
    same bits. With micro_batches=k, a step is up to k times ``forward``, ``backward`` over
    consecutive rows, each adding to the gradients, and an ``update``. Errors leave parameters,
    gradients and state as they were. counters: `count()`.
    """

    def __init__(self, plan: Plan, *, counters: bool = False) -> None:
        if not isinstance(plan, Plan):
            raise QfwError(f"a Session needs a Plan from q.compile, not {type(plan).__name__}")
        self._plan = plan
        self._bytes = aligned(plan.to_bytes())
        self._spaces = Spaces(plan)
        check_plan(self._bytes, plan)
        self._image = ffi.new("qfw_image *")
        self._image.plan = ffi.from_buffer(self._bytes)
        self._image.plan_bytes = self._bytes.size
        self._image.constants = ffi.from_buffer(self._spaces.const)
        self._image.const_bytes = plan.layout.const_bytes
        self._image.kernels = quant.kernels()
        self._image.ops = lib.qfw_ops_all()
        net = ffi.new("qfw_net **")
        arena = ffi.from_buffer(self._spaces.arena, require_writable=True)
        with quant.float_mode():
            self._done(lib.qfw_open(arena, plan.arena_bytes, self._image, net), "open")
        self._net = net[0]
        self._progress = ffi.new("qfw_progress *")
        self._io = ffi.new("qfw_io *")
        self._loss = ffi.new("float *")
        self._last = -1  # the operation that ran last; what it and those before wrote is there
        self._rows = 0
        self._turn = 0  # walks begun
        self._has_gradients = False
        self._gains = {n: self._spaces.parts(t, 1)[0] for n, t in plan.program.gains.items()}
        self._known = not self._gains  # every gain is there
        self._first: Array | None = None  # rows of a forward whose errors have no gain yet
        self._fragile = plan.may_fail_late or bool(self._gains)
        self._targets = feed.targets_of(plan.request.loss, plan.nodes[-1].out_shape)
        self._end = len(plan.ops) - 1
        self._source: dict[str, Array] = {}  # floats that stored parameters were made of
        self.epochs = 0  # passes over the data that `fit` made: with the seed, the next one's order
        for table, values in plan.program.constants.values():
            self._spaces.write(table, self._encoded(table, values))
        self._load(initial.values(plan))
        self._counters: Array | None = None
        if counters:
            self.count()

    def __repr__(self) -> str:
        return f"<Session of {self._plan!r}, {self.steps} steps>"

    # --- learning ---------------------------------------------------------------------------------

    @property
    def plan(self) -> Plan:
        return self._plan

    def step(self, x: npt.ArrayLike, y: npt.ArrayLike) -> float:
        """One update from up to `batch` rows; returns the mean loss."""
        self._needs_optimizer("step")
        data = self._inputs(x)
        rows = len(data)
        labels = self._targets.take(y, rows)
        several = rows > self._plan.rows
        if several:  # the core looks at a micro-batch's labels when it is there
            self._targets.blame(labels)
        if self._unset("gain"):
            feed.blame(data, x)
            self._calibrate(data, self._labels(y, rows))
        kept = self._begin(several)
        with quant.float_mode():
            pointers = ffi.from_buffer(data), ffi.from_buffer(labels)
            status = lib.qfw_step(self._net, *pointers, rows, self._loss)
        self._done(status, "step", kept=kept, x=x, data=data, y=y)
        self._last, self._rows = self._end, (rows - 1) % self._plan.rows + 1
        self._has_gradients = True
        self._source = {}
        return float(self._loss[0])

    def forward(self, x: npt.ArrayLike) -> Array:
        """The training forward of a micro-batch; the output as float32."""
        plan = self._plan
        of = "its batch" if plan.micro_batches == 1 else "the rows of a micro-batch"
        data = feed.inputs(x, plan.request.input_shape, plan.rows, of)
        out = np.empty((len(data), *self._plan.nodes[-1].out_shape), np.float32)
        feed.blame(data, x)
        if self._unset("wire gain"):
            self._calibrate(data, None)
        self._first = data.copy() if self._unset("error gain") else None
        self._run("forward", len(data), x=data)
        self._run("output", len(data), out=out)
        return out

    def backward(self, y: npt.ArrayLike, rows: int | None = None) -> float:
        """Adds the gradients of what `forward` saw; returns its loss, the mean over its own rows.

        `rows`: those of the whole step, over which the gradients are the mean; None: those given,
        times `micro_batches`. The first backward after an update begins anew, and so does one
        after the step's last.
        """
        self._needs_loss("backward")
        if self._last != self._plan.section("output").stop - 1:
            raise QfwError("backward needs a forward right before it")
        labels = self._labels(y, self._rows)
        if self._first is not None:
            self._calibrate(self._first, labels)
            self._first = None
        step_rows = 0
        if rows is not None:
            most = self._plan.rows * self._plan.micro_batches
            step_rows = integer(rows, "rows", self._rows, most)
        self._run("backward", self._rows, step_rows, y=labels)
        self._has_gradients = True
        if any(node.policy.grads == "fused" for node in self._plan.nodes):
            self._source = {}
        return self._read_loss()

    def update(self) -> None:
        """Moves the parameters by the gradients of the backwards since the last update."""
        self._needs_optimizer("update")
        if not self._has_gradients:
            raise QfwError("update needs a backward before it")
        self._run("update", max(self._rows, 1))
        self._source = {}

    def trace(
        self, x: npt.ArrayLike, y: npt.ArrayLike | None = None
    ) -> Iterator[tuple[Op, dict[str, QTensor]]]:
        """A step, stopped after each operation: (operation, the tensors that it wrote).

        The step is done when the last operation has been asked for. A plan without a loss has just
        the operations of its forward, and takes no y.
        """
        data = self._inputs(x)
        feed.blame(data, x)
        if y is not None or self._plan.request.loss is not None:
            self._needs_loss("trace with y")
            labels = self._labels(() if y is None else y, len(data))
            if self._unset("gain"):
                self._calibrate(data, labels)
            return self._traced(data, labels)
        if self._unset("gain"):
            self._calibrate(data, None)
        return self._traced(data, np.empty(0, np.int32))

    # --- asking -----------------------------------------------------------------------------------

    def predict(self, x: npt.ArrayLike) -> Array:
        """The output for any number of rows, each as if it were alone."""
        data = feed.inputs(x, self._plan.request.input_shape, None)
        out = np.empty((len(data), *self._plan.nodes[-1].out_shape), np.float32)
        if len(data):
            target = ffi.from_buffer("float[]", out, require_writable=True)
            for name in self._unset("wire gain"):
                raise QfwError(
                    f"predict: '{name}' is not known yet: a hindsight range needs a step() or "
                    f"forward() on a batch before"
                )
            self._begin()
            with quant.float_mode():
                status = lib.qfw_infer(self._net, ffi.from_buffer(data), len(data), target)
            self._done(status, "predict", x=x, data=data)
        return out

    __call__ = predict

    @property
    def steps(self) -> int:
        """Updates done."""
        return int(self._get().step)

    @property
    def lr(self) -> float:
        """The learning rate of the next update: a float32, as its shortest decimal."""
        return float(str(np.float32(self._get().lr)))

    @lr.setter
    def lr(self, value: float) -> None:
        optimizer = self._plan.request.optimizer
        if optimizer is None:
            raise QfwError("lr: this plan was compiled without an optimizer")
        self._set(lr=optimizer.with_lr(value).lr)  # checked there

    def count(self, on: bool = True) -> None:
        """Begins to count, from zero; or stops. No bit of a step depends on it, only its time."""
        records = counting.table(self._plan.program)
        table = ffi.cast("qfw_counter *", ffi.from_buffer(records)) if on else ffi.NULL
        self._done(lib.qfw_set_counters(self._net, table, len(records)), "count")
        self._counters = records if on else None  # the core writes into it

    def load_state_dict(self, values: Mapping[str, npt.ArrayLike], strict: bool = True) -> None:
        """Sets parameters, encoded in their formats; all of them unless not strict."""
        self._load(initial.checked(self._plan, values, strict))
        self._last = -1  # no backward of what other parameters made
        self._restart()

    def recompile(self, *, train: list[str] | None = None, **changes: Any) -> Session:
        """The same network under other arguments of `q.compile`; `train`: the layers that learn.

        Parameters keep their bits where the format stays, else their values; before an update,
        those that they were made of. The optimizer's state stays with the optimizer.
        """
        unknown = sorted(set(changes) - set(_CHANGES))
        if unknown:
            legal = ", ".join((*_CHANGES, "train"))
            raise QfwError(f"recompile: {unknown[0]} cannot be changed; what can: {legal}")
        request = self._plan.request
        if train is not None:
            changes["train"] = initial.trained(self._plan, train)
        net = Session(build(replace(request, **changes)))
        carry.over(self, net)
        return net

    def save(self, path: saving.PathName) -> None:
        """Writes what a resumed run needs (docs/files.md); the old file stands until it is done."""
        now = self._get()
        if now.micro:
            raise QfwError(
                "save: gradients of micro-batches wait for their update, and are not saved; call "
                "update() first"
            )
        progress = {name: getattr(now, name) for name in _PROGRESS}
        tensors = {t.name: self._spaces.read(t, 1) for t in saving.kept(self._plan)}
        saving.write(path, saving.Saved(self._plan, progress, self.epochs, tensors, self._source))

    @classmethod
    def load(cls, path: saving.PathName) -> Session:
        """The session that `save` wrote: it goes on as if it had never stopped."""
        with saving.blamed(path):
            saved = saving.read(path)
            net = cls(saved.plan)
            for t in saving.kept(saved.plan):
                net._spaces.write(t, saved.tensors[t.name])
            net._set(**saved.progress)
        net._source, net.epochs = saved.source, saved.epochs
        return net

    # --- inside -----------------------------------------------------------------------------------

    def _mark(self) -> Mark:
        """A copy of all that lasts."""
        end = self._plan.layout.persistent_bytes
        return Mark(self._spaces.arena[:end].copy(), self._has_gradients, self._source)

    def _go_back(self, mark: Mark) -> None:
        """Undoes the steps since."""
        self._begin()
        self._spaces.arena[: mark.data.size] = mark.data
        self._has_gradients, self._source = mark.has_gradients, mark.source

    def _unset(self, ending: str) -> list[str]:
        """Gains of hindsight ranges that there are not yet."""
        if self._known:
            return []
        missing = [name for name, g in self._gains.items() if not g[:4].any()]
        self._known = not missing
        return [name for name in missing if name.endswith(ending)]

    def _calibrate(self, data: Array, labels: Array | None) -> None:
        """Gives those their first value; without labels, those of the forward."""
        twin = Session(build(self._plan.request, watching=True))
        carry.over(self, twin)
        carry.first_gains(self, twin, data, labels)

    def _set(self, **fields: Any) -> None:
        """Fields of the core's progress."""
        progress = self._get()
        for name, value in fields.items():
            setattr(progress, name, value)
        self._done(lib.qfw_set_progress(self._net, progress), "progress")

    def _load(self, values: Mapping[str, Array]) -> None:
        parameters = self._plan.program.parameters
        for name, stored in {n: self._encoded(parameters[n], x) for n, x in values.items()}.items():
            self._spaces.write(parameters[name], stored)
        self._source = {**self._source, **values}

    def _traced(self, data: Array, labels: Array) -> Iterator[tuple[Op, dict[str, QTensor]]]:
        plan, m, done = self._plan, self._plan.rows, ffi.new("uint32_t *")
        out = np.empty((m, *plan.nodes[-1].out_shape), np.float32)
        kept = self._begin(len(data) > m)
        turn = self._turn
        self._restart()
        backward, update = plan.section("backward"), plan.section("update")
        if plan.request.optimizer is not None:
            self._source = {}
        starts = range(0, len(data), m)
        walks = [(at, i) for at in starts for i in range(update.start)]
        walks += [(starts[-1], i) for i in update]
        for number, (at, i) in enumerate(walks):
            op, part = plan.ops[i], slice(at, at + m)
            if turn != self._turn:
                raise QfwError("trace: the session has been used otherwise; begin another trace")
            pointers = [ffi.from_buffer(a) for a in (data[part], labels[part], out)]
            self._io.x, self._io.y, self._io.out = pointers
            self._io.step_rows, self._rows = len(data), len(data[part])
            with quant.float_mode():
                status = lib.qfw_walk(self._net, self._io, self._rows, i, 1, done)
                self._done(status, "trace", i, kept)
            self._last = i
            self._has_gradients |= backward[-1:] == range(i, i + 1)
            if number == len(walks) - 1 and self._ends_without_update():
                self._run("update", self._rows)
            made = [t for t in op.written if t.fmt and t.space == "arena"]
            yield op, {t.name: self._spaces.read(t, self._rows) for t in made}

    def _encoded(self, t: Tensor, x: Array) -> QTensor:
        assert t.fmt is not None
        return quantize(x, t.fmt, rounding="half_away")

    def _get(self) -> Any:
        self._done(lib.qfw_get_progress(self._net, self._progress), "progress")
        return self._progress

    def _run(self, section: str, rows: int, step_rows: int = 0, **buffers: Array) -> None:
        held = {name: ffi.from_buffer(array) for name, array in buffers.items()}
        for name in ("x", "y", "out"):
            setattr(self._io, name, held.get(name, ffi.NULL))
        self._io.step_rows = step_rows
        ops, last, kept = self._plan.section(section), self._last, self._begin()
        with quant.float_mode():
            status = lib.qfw_run_section(self._net, _SECTIONS[section], self._io, rows)
            self._done(status, section, kept=kept)
        # An update by older gradients leaves nothing of a forward.
        self._last = ops.stop - 1 if ops.start == 0 or last >= ops.start - 1 else -1
        self._rows = rows

    def _ends_without_update(self) -> bool:
        """Whether a step ends with its backward, which is for the core to know."""
        return self._plan.request.optimizer is not None and not self._plan.section("update")

    def _begin(self, several: bool = False) -> tuple[Array | None, int]:
        """Before a walk: a copy of what lasts, where the walk (or the second of several) may fail
        after some was written; and the number of the micro-batch."""
        self._turn += 1
        self._last = -1
        lasting = self._spaces.lasting().copy() if self._fragile or several else None
        return lasting, int(self._get().micro) if self._plan.micro_batches > 1 else 0

    def _restart(self, micro: int = 0) -> None:
        """What comes next is micro-batch `micro` of its step."""
        if self._plan.micro_batches > 1:
            progress = self._get()
            progress.micro = micro
            self._done(lib.qfw_set_progress(self._net, progress), "progress")

    def _read_loss(self) -> float:
        t = self._plan.program.loss
        assert t is not None
        return float(self._spaces.parts(t, 1)[0].view(np.float32)[0])

    def _needs_optimizer(self, what: str) -> None:
        self._needs_loss(what)
        if self._plan.request.optimizer is None:
            raise QfwError(f"{what}: this plan was compiled without an optimizer")

    def _inputs(self, x: npt.ArrayLike) -> Array:
        request = self._plan.request
        return feed.inputs(x, request.input_shape, request.batch)

    def _labels(self, y: npt.ArrayLike, rows: int) -> Array:
        found = self._targets.take(y, rows)
        self._targets.blame(y)
        return found

    def _done(
        self,
        status: int,
        what: str,
        op: int | None = None,
        kept: tuple[Array | None, int] = (None, -1),
        *,
        x: npt.ArrayLike | None = None,
        data: Array | None = None,
        y: npt.ArrayLike | None = None,
    ) -> None:
        """Turns a status of the core into an exception: `kept` is put back, x and y are blamed."""
        if status == lib.QFW_OK:
            return
        lasting, micro = kept
        if lasting is not None:
            self._spaces.lasting()[:] = lasting
        if micro >= 0:
            self._restart(micro)
        if status == lib.QFW_E_NONFINITE and data is not None and x is not None:
            feed.blame(data, x)
        if status in (lib.QFW_E_LABEL, lib.QFW_E_NONFINITE) and y is not None:
            self._targets.blame(y)
        text = ffi.string(lib.qfw_status_text(status)).decode()
        place = ""
        if op is not None:
            at = self._plan.ops[op]
            place = f" at operation {op}, {at.kernel} of layer '{at.layer}'"
        if status == lib.QFW_E_NORM:
            raise NonFiniteError(
                f"{what}{place}: {text}, and max_grad_norm needs it: the network has diverged; go "
                f"back to good parameters (load_state_dict) with a smaller lr"
            )
        if status == lib.QFW_E_NONFINITE:
            raise NonFiniteError(
                f"{what}{place}: a value in the network is infinite or NaN: it has diverged; go "
                f"back to good parameters (load_state_dict) with a smaller lr"
            )
        raise QfwError(f"{what}{place}: {text}")


def check_plan(data: Array, plan: Plan | None = None) -> None:
    """The core's full check of a plan's bytes; names the operation and the tensor at fault."""
    fault = ffi.new("qfw_fault *")
    copy = aligned(bytes(data))
    status = lib.qfw_check(ffi.from_buffer(copy), copy.size, fault)
    if status == lib.QFW_OK:
        return
    text = ffi.string(lib.qfw_status_text(status)).decode()
    words = "" if fault.field == ffi.NULL else ffi.string(fault.field).decode()
    place = [words] if words else []
    if fault.op >= 0:
        ops = [] if plan is None else plan.program.all_ops
        name = f" ({ops[fault.op].kernel})" if fault.op < len(ops) else ""
        place.append(f"operation {fault.op}{name}")
    if fault.tensor >= 0:
        tensors = [] if plan is None else plan.program.tensors
        name = f" ({tensors[fault.tensor].name})" if fault.tensor < len(tensors) else ""
        place.append(f"tensor {fault.tensor}{name}")
    raise QfwError(f"plan: {text}" + (f": {', '.join(place)}" if place else ""))
