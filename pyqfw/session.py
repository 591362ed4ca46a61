"""Session: a plan at work. Owns the memory that the core walks over."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy import ndarray

from . import carry, feed, initial, quant, saving
from . import counters as counting
from ._arrays import Array, integer
from ._core import ffi, lib
from ._spaces import Spaces, aligned, room
from ._views import Views
from .errors import NonFiniteError, QfwError
from .lower import Op, Tensor
from .lower.norm import POSITIONS
from .plan import Plan, build
from .tensor import QTensor, quantize

_FLOAT32, _INT64 = np.dtype(np.float32), np.dtype(np.int64)
_from_buffer, _host_step = ffi.from_buffer, lib.qfw_host_step
_UNUSUAL = -1  # no status of the core
_SECTIONS = {
    "forward": lib.QFW_FORWARD,
    "output": lib.QFW_OUTPUT,
    "backward": lib.QFW_BACKWARD,
    "update": lib.QFW_UPDATE,
}
_CHANGES = (
    *("loss", "optimizer", "policy", "batch", "micro_batches", "preprocess"),
    *("seed", "input_shape"),
)


class Mark(NamedTuple):
    """A session between two steps: the core's own bytes with those that last, and more."""

    data: Array
    has_gradients: bool
    source: dict[str, Array]


class Kept(NamedTuple):
    """What a walk may leave half done, and what it was before."""

    at_risk: Array
    before: Array
    micro: int


class Session(Views):
    """A network that can be stepped, asked and looked into.

    ``step(x, y)`` is ``forward(x)``, ``backward(y)``, ``update()``: the same operations, so the
    same bits. With micro_batches=k, a step is up to k times ``forward``, ``backward`` over
    consecutive rows, each adding to the gradients, and an ``update``. Errors leave parameters,
    gradients and state as they were. counters: `count()`. threads: how many work at a step; the
    bits do not depend on it.
    """

    def __init__(self, plan: Plan, *, counters: bool = False, threads: int = 1) -> None:
        if not isinstance(plan, Plan):
            raise QfwError(f"a Session needs a Plan from q.compile, not {type(plan).__name__}")
        self._threads = integer(threads, "threads", 1, lib.QFW_HOST_THREADS)
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
        self._pool = self._open_pool() if self._threads > 1 else None
        self._progress = ffi.new("qfw_progress *")
        self._io = ffi.new("qfw_io *")
        self._loss = ffi.new("float *")
        self._turn = 0  # walks begun
        self._gains = {n: self._spaces.parts(t, 1)[0] for n, t in plan.program.gains.items()}
        self._first: Array | None = None  # rows of a forward whose errors have no gain yet
        self._counters: Array | None = None
        self._open(None)
        fragile = plan.may_fail_late or bool(self._gains)
        self._at_risk = self._spaces.lasting() if fragile else self._spaces.statistics()
        self._nothing = Kept(self._at_risk, self._at_risk, 0)
        self._fragile = self._at_risk.size > 0 or plan.request.micro_batches > 1
        self._targets = feed.targets_of(plan.request.loss, plan.nodes[-1].out_shape)
        self._end = len(plan.ops) - 1
        request, program = plan.request, plan.program
        self._batch, self._shape, self._most = plan.rows, request.input_shape, request.batch
        self._learns = request.loss is not None and request.optimizer is not None
        self._int64 = _INT64 if isinstance(self._targets, feed.Labels) else None
        swaps = request.batch * program.input.size if program.input.channels else 0
        self._rooms = ffi.new("float[]", swaps), ffi.new("int32_t[]", request.batch)
        self._bound = self._bind() if self._learns and self._pool is None else None
        self._plain, self._wide = self._feed(False), self._feed(True)
        plain = self._learns and not self._fragile
        shapes = (request.batch, *request.input_shape), (request.batch,) if plain else None
        here = self._net, self._wide, self._most, self._loss
        self._usual = (self._int64, *shapes, *here)  # of most steps, that need no care
        self._source: dict[str, Array] = {}  # floats that stored parameters were made of
        self.epochs = 0  # passes over the data that `fit` made: with the seed, the next one's order
        for table, values in plan.program.constants.values():
            self._spaces.write(table, self._encoded(table, values))
        self._load(initial.values(plan))
        if counters:
            self.count()

    def __repr__(self) -> str:
        threads = f", {self._threads} threads" if self._threads > 1 else ""
        return f"<Session of {self._plan!r}, {self.steps} steps{threads}>"

    # --- learning ---------------------------------------------------------------------------------

    @property
    def plan(self) -> Plan:
        return self._plan

    @property
    def threads(self) -> int:
        """How many threads work at a step, this one included."""
        return self._threads

    def step(self, x: npt.ArrayLike, y: npt.ArrayLike) -> float:
        """One update from up to `batch` rows; returns the mean loss."""
        # What most steps are fed needs no other look.
        status = _UNUSUAL
        labels, whole, each, net, how, most, room = self._usual
        if (
            type(x) is ndarray
            and type(y) is ndarray
            and x.dtype is _FLOAT32
            and y.dtype is labels
            and x.shape == whole
            and y.shape == each
        ):
            try:
                fed, asked = _from_buffer(x), _from_buffer(y)
                status = _host_step(net, how, fed, asked, most, room)
            except ValueError:  # not in C order
                pass
        if status == 0:
            self._turn += 1
            self._rows = most
        elif status in (_UNUSUAL, lib.QFW_E_NULL):  # or not aligned
            self._step(x, y)
        else:
            self._turn += 1
            self._last = -1
            self._done(status, "step", kept=self._nothing, x=x, data=np.asarray(x), y=y)
        self._last = self._end
        self._has_gradients = True
        if self._source:
            self._source = {}
        loss: float = room[0]
        return loss

    def _step(self, x: npt.ArrayLike, y: npt.ArrayLike) -> None:
        """A step of anything, and of a session that it may leave half done."""
        if not self._learns:
            self._needs_optimizer("step")
        data = feed.inputs(x, self._shape, self._most)
        rows, how = len(data), self._wide
        if type(y) is ndarray and y.dtype is self._int64 and y.shape == (rows,) and y.flags.carray:
            labels: Array = y
        else:
            labels, how = self._asked(self._targets.take(y, rows)), self._plain
        several = rows > self._batch
        if several:  # the core looks at a micro-batch's labels when it is there
            self._targets.blame(labels)
        if not self._known and self._unset("gain"):
            feed.blame(data, x)
            self._calibrate(data, self._labels(y, rows))
        kept = self._begin(several) if self._fragile else self._nothing
        self._turn += 1
        self._last = -1
        fed, asked = _from_buffer(data), _from_buffer(labels)
        status = _host_step(self._net, how, fed, asked, rows, self._loss)
        if status:
            self._done(status, "step", kept=kept, x=x, data=data, y=y)
        self._rows = (rows - 1) % self._batch + 1

    def forward(self, x: npt.ArrayLike) -> Array:
        """The training forward of a micro-batch; the output as float32."""
        plan = self._plan
        of = "its batch" if plan.micro_batches == 1 else "the rows of a micro-batch"
        data = feed.inputs(x, plan.request.input_shape, plan.rows, of)
        feed.blame(data, x)
        if self._unset("wire gain"):
            self._calibrate(data, None)
        self._first = data.copy() if self._unset("error gain") else None
        result = plan.program.output
        out = np.empty((len(data), *result.storage_shape), np.float32)
        self._run("forward", len(data), x=self._fed(data))
        self._run("output", len(data), out=out)
        return result.from_storage(out)

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
        self._run("backward", self._rows, step_rows, y=self._asked(labels))
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
        result = self._plan.program.output
        out = np.empty((len(data), *result.storage_shape), np.float32)
        if len(data):
            target = ffi.from_buffer("float[]", out, require_writable=True)
            for name in self._unset("wire gain"):
                raise QfwError(
                    f"predict: '{name}' is not known yet: a hindsight range needs a step() or "
                    f"forward() on a batch before"
                )
            self._begin()
            with quant.float_mode():
                fed = ffi.from_buffer(self._fed(data))
                status = lib.qfw_infer(self._net, fed, len(data), target)
            self._done(status, "predict", x=x, data=data)
        return result.from_storage(out)

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
        self._counters = counting.table(self._plan.program) if on else None
        self._attach_counters()

    def load_state_dict(self, values: Mapping[str, npt.ArrayLike], strict: bool = True) -> None:
        """Sets parameters, encoded in their formats, and statistics; all unless not strict."""
        self._load(initial.checked(self._plan, values, strict))
        self._last = -1  # no backward of what other parameters made
        self._restart()

    def recompile(
        self, *, train: list[str] | None = None, threads: int | None = None, **changes: Any
    ) -> Session:
        """The same network under other arguments of `q.compile`; `train`: the layers that learn.

        Parameters keep their bits where the format stays, else their values; before an update,
        those that they were made of. The optimizer's state stays with the optimizer.
        """
        unknown = sorted(set(changes) - set(_CHANGES))
        if unknown:
            legal = ", ".join((*_CHANGES, "train", "threads"))
            raise QfwError(f"recompile: {unknown[0]} cannot be changed; what can: {legal}")
        request = self._plan.request
        if train is not None:
            changes["train"] = initial.trained(self._plan, train)
        threads = self._threads if threads is None else threads
        net = Session(build(replace(request, **changes)), threads=threads)
        carry.over(self, net)
        return net

    def save(self, path: saving.PathName) -> None:
        """Writes what a resumed run needs (docs/files.md); the old file stands until it is done."""
        saving.write(path, saving.of(self))

    @classmethod
    def load(cls, path: saving.PathName, *, threads: int = 1) -> Session:
        """The session that `save` wrote: it goes on as if it had never stopped."""
        integer(threads, "threads", 1, lib.QFW_HOST_THREADS)  # no fault of the file
        with saving.blamed(path):
            saved = saving.read(path)
            net = cls(saved.plan, threads=threads)
            for t in saving.kept(saved.plan):
                net._spaces.write(t, saved.tensors[t.name])
            net._set(**saved.progress)
        net._source, net.epochs = saved.source, saved.epochs
        return net

    # --- inside -----------------------------------------------------------------------------------

    def _open_pool(self) -> Any:
        """Threads that end with the session."""
        plan, size, image = ffi.from_buffer(self._bytes), self._bytes.size, self._image
        bytes_, pool = ffi.new("size_t *"), ffi.new("qfw_host_pool **")
        what = f"threads={self._threads}"
        self._done(lib.qfw_host_pool_size(plan, size, self._threads, bytes_), what)
        memory = room(bytes_[0])
        held = ffi.from_buffer(memory, require_writable=True)
        status = lib.qfw_host_pool_open(
            held, memory.size, plan, size, self._threads, image.kernels, pool
        )
        self._done(status, what)
        image.kernels = lib.qfw_host_pool_kernels(pool[0])
        image.ops = lib.qfw_host_pool_ops(pool[0])
        weakref.finalize(self, _close_pool, pool[0], held)
        return pool[0]

    def _open(self, state: Array | None) -> None:
        """The net from the beginning, or from a state (docs/format.md section 10); if that is
        refused, as it was."""
        net, image = ffi.new("qfw_net **"), self._image
        image.state = ffi.NULL if state is None else ffi.from_buffer(state)
        image.state_bytes = 0 if state is None else state.size
        arena = ffi.from_buffer(self._spaces.arena, require_writable=True)
        with quant.float_mode():
            self._done(lib.qfw_open(arena, self._plan.arena_bytes, image, net), "open")
        self._net = net[0]
        self._opened_with = state  # the core knows where it is
        self._turn += 1
        self._last = -1  # the operation that ran last; what it and those before wrote is there
        self._rows = 0
        self._has_gradients = False
        self._known = not self._gains  # every gain is there
        self._first = None
        self._attach_counters()

    def _attach_counters(self) -> None:
        table, records = ffi.NULL, len(self._plan.program.tensors)
        if self._counters is not None:  # the core writes into it
            table = ffi.cast("qfw_counter *", ffi.from_buffer(self._counters))
        self._done(lib.qfw_set_counters(self._net, table, records), "count")

    def _shown(self, t: Tensor, rows: int) -> QTensor:
        if self._pool is not None and t.rows:
            number = next(i for i, u in enumerate(self._plan.program.tensors) if u is t)
            lib.qfw_host_pool_gather(self._pool, self._net, number, rows)
        return super()._shown(t, rows)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """In the block one thread works, so that scratch can be looked at."""
        if self._pool is not None:
            lib.qfw_host_pool_least(self._pool, -1)
        try:
            yield
        finally:
            if self._pool is not None:
                lib.qfw_host_pool_least(self._pool, 0)

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
        program = self._plan.program
        kept = program.kept
        for name, stored in {n: self._encoded(kept[n], x) for n, x in values.items()}.items():
            self._spaces.write(kept[name], stored)
        floats = {name: x for name, x in values.items() if name in program.parameters}
        self._source = {**self._source, **floats}

    def _traced(self, data: Array, labels: Array) -> Iterator[tuple[Op, dict[str, QTensor]]]:
        plan, m, done = self._plan, self._plan.rows, ffi.new("uint32_t *")
        out = np.empty((m, *plan.nodes[-1].out_shape), np.float32)
        data, labels = self._fed(data), self._asked(labels)
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
            with quant.float_mode(), self._alone():
                status = lib.qfw_walk(self._net, self._io, self._rows, i, 1, done)
                self._done(status, "trace", i, kept)
            self._last = i
            self._has_gradients |= backward[-1:] == range(i, i + 1)
            if number == len(walks) - 1 and self._ends_without_update():
                self._run("update", self._rows)
            made = [t for t in op.written if t.fmt and t.space == "arena"]
            yield op, {t.name: self._shown(t, self._rows) for t in made}

    def _feed(self, wide: bool) -> Any:
        """What the core's step is told of x in PyTorch's order, and of labels, wide or not."""
        how, t = ffi.new("qfw_host_feed *"), self._plan.program.input
        how.rows = self._most
        if t.channels:
            how.channels, how.positions = t.channels, t.size // t.channels
            how.swapped = self._rooms[0]
        if wide:
            how.labels = self._rooms[1]
        if self._bound is not None:
            how.bound = self._bound
        return how

    def _bind(self) -> Any:
        """The operands of a step of all rows, in memory that is kept; None: steps find them."""
        if self._plan.request.micro_batches != 1:
            return None
        bytes_ = ffi.new("size_t *")
        self._done(lib.qfw_host_bind(ffi.NULL, bytes_, self._net, self._most), "open")
        held = ffi.from_buffer(room(bytes_[0]), require_writable=True)
        self._done(lib.qfw_host_bind(held, bytes_, self._net, self._most), "open")
        return held

    def _fed(self, data: Array) -> Array:
        """Rows as they lie in memory."""
        return self._plan.program.input.to_storage(data)

    def _asked(self, labels: Array) -> Array:
        """Labels, or targets as the output lies in memory."""
        asked = self._plan.program.labels
        return labels if asked is None or not labels.size else asked.to_storage(labels)

    def _encoded(self, t: Tensor, x: Array) -> QTensor:
        assert t.storage_format is not None
        return quantize(t.to_storage(x), t.storage_format, rounding="half_away")

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

    def _begin(self, several: bool = False) -> Kept:
        """Before a walk: a copy of what it (or the second of several) may write before it fails;
        and the number of the micro-batch."""
        self._turn += 1
        self._last = -1
        if self._plan.request.micro_batches == 1:
            at_risk = self._at_risk
            return Kept(at_risk, at_risk.copy(), 0) if at_risk.size else self._nothing
        at_risk = self._spaces.lasting() if several else self._at_risk
        return Kept(at_risk, at_risk.copy(), int(self._get().micro))

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
        kept: Kept | None = None,
        *,
        x: npt.ArrayLike | None = None,
        data: Array | None = None,
        y: npt.ArrayLike | None = None,
    ) -> None:
        """Turns a status of the core into an exception: `kept` is put back, x and y are blamed."""
        if status == lib.QFW_OK:
            return
        if kept is not None:
            kept.at_risk[:] = kept.before
            self._restart(kept.micro)
        if status == lib.QFW_E_NONFINITE and data is not None and x is not None:
            feed.blame(data, x)
        if status in (lib.QFW_E_LABEL, lib.QFW_E_NONFINITE) and y is not None:
            self._targets.blame(y)
        text = status_text(status)
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
        if status == lib.QFW_E_BATCH:
            norms = (op for op in self._plan.ops if op.kernel.startswith("batch_norm"))
            layer = next(op.layer for op in norms if op.params[POSITIONS] == 1)
            raise QfwError(
                f"{what}: layer '{layer}': {text}: BatchNorm needs two rows or more in each "
                f"micro-batch of a step; leave the last row out, or choose another batch"
            )
        raise QfwError(f"{what}{place}: {text}")


def _close_pool(pool: Any, held: object) -> None:
    """`held`: the memory that it lies in, until then."""
    lib.qfw_host_pool_close(pool)


def check_plan(data: Array, plan: Plan | None = None) -> None:
    """The core's full check of a plan's bytes; names the operation and the tensor at fault."""
    fault = ffi.new("qfw_fault *")
    copy = aligned(bytes(data))
    status = lib.qfw_check(ffi.from_buffer(copy), copy.size, fault)
    if status == lib.QFW_OK:
        return
    text = status_text(status)
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


def status_text(status: int) -> str:
    """The core's sentence for a status."""
    return str(ffi.string(lib.qfw_status_text(status)).decode())
