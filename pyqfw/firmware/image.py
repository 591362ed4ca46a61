"""A net as C: its plan, constants, state and table of operations."""

from __future__ import annotations

from dataclasses import dataclass

from .. import state
from ..narrow import narrow
from ..plan import Plan
from ..session import Session
from ..wire import KERNELS

LINE = 24  # bytes


@dataclass(frozen=True)
class Image:
    """What a net is made of, in bytes."""

    plan: Plan
    plan_bytes: bytes
    own_plan: bytes  # the same as the firmware has it: in narrow records if they do
    constants: bytes
    state: bytes  # parameters, optimizer state, progress: docs/format.md

    @property
    def operations(self) -> list[str]:
        """Those that the plan names, each once, by number."""
        names = {op.kernel for op in self.plan.program.all_ops}
        return sorted(names, key=KERNELS.__getitem__)

    @property
    def trains(self) -> bool:
        return self.plan.request.optimizer is not None

    @property
    def input_elements(self) -> int:
        return self.plan.program.input.size

    @property
    def output_elements(self) -> int:
        return self.plan.program.output.size

    @property
    def ram(self) -> int:
        """Bytes of the arena and of the caller's rows."""
        rows = self.plan.batch * (self.input_elements + self.labels) + self.output_elements
        return self.plan.arena_bytes + 4 * rows

    @property
    def is_narrow(self) -> bool:
        """Whether the firmware has the plan in narrow records."""
        return self.own_plan != self.plan_bytes

    @property
    def labels(self) -> int:
        """Words of a row's label or target."""
        labels = self.plan.program.labels
        return 0 if labels is None else labels.size


def image_of(net: Session, any_core: bool = False) -> Image:
    """The net as it stands; `any_core`: for a core of any plan, which reads no narrow records."""
    constants = net._spaces.const[: net.plan.layout.const_bytes].tobytes()
    plan = net.plan.to_bytes()
    own = None if any_core else narrow(plan)
    return Image(net.plan, plan, own or plan, constants, state.encode(state.of(net)))


def header_text(image: Image) -> str:
    """model_image.h"""
    plan, labels = image.plan, image.plan.program.labels
    what = "int32_t, the class" if labels is None or labels.fmt is None else "floats, the target"
    sizes = {
        "ARENA_BYTES": (plan.arena_bytes, "RAM that qfw_open asks for"),
        "STATE_BYTES": (len(image.state), "of a slot of qfw_store and qfw_resume"),
        "ROWS": (plan.batch, "the most of a step"),
        "INPUTS": (image.input_elements, f"floats of a row: {order(image)}"),
        "LABELS": (image.labels, f"of a row: {what}" if image.labels else "none"),
        "OUTPUTS": (image.output_elements, "floats of a row"),
    }
    lines = "\n".join(f"    MODEL_{n} = {v}, /* {text} */" for n, (v, text) in sizes.items())
    return f"""/* The net of this firmware. */
#ifndef MODEL_IMAGE_H
#define MODEL_IMAGE_H

#include "include/qfw.h"

enum {{
{lines}
    MODEL_SAMPLE_BYTES = 4 * MODEL_ROWS * (MODEL_INPUTS + MODEL_LABELS) /* of a step's rows */
}};

extern const qfw_image model_image;

#endif
"""


def order(image: Image) -> str:
    """How the numbers of a row lie."""
    t = image.plan.program.input
    shape = "x".join(map(str, t.storage_shape))
    return shape if t.storage_shape == t.shape else f"{shape}, the channels last"


def source_text(image: Image) -> str:
    """model_image.c"""
    arrays = {"plan": image.own_plan, "constants": image.constants, "state": image.state}
    given = {name: data for name, data in arrays.items() if data}
    text = "\n".join(_array(name, data) for name, data in given.items())
    lines = "\n".join(f"    QFW_OP_LINE({name})," for name in image.operations)
    fields = {"plan": "plan_bytes", "constants": "const_bytes", "state": "state_bytes"}
    parts = "\n".join(f"    .{n} = {n},\n    .{fields[n]} = sizeof {n}," for n in given)
    return f"""#include "model_image.h"

#include "engine/engine.h"

#define ALIGNED __attribute__((aligned(QFW_ALIGN)))

{text}
/* The operations that the plan names; the linker leaves out the others. */
static const qfw_op_line lines[] = {{
{lines}
}};
static const qfw_ops operations = {{lines, sizeof lines / sizeof lines[0]}};

const qfw_image model_image = {{
{parts}
    .ops = &operations,
}};
"""


def _array(name: str, data: bytes) -> str:
    lines = (data[i : i + LINE] for i in range(0, len(data), LINE))
    text = "\n".join("    " + " ".join(f"{byte}," for byte in line) for line in lines)
    return f"static const ALIGNED uint8_t {name}[{len(data)}] = {{\n{text}\n}};\n"
