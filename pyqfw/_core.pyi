# Written by tools/gen_stub.py from csrc/include/qfw.h: do not edit.
from typing import Any, Final

class _Lib:
    QFW_ALIGN: Final = 16
    QFW_ARENA: Final = 0
    QFW_ASYM: Final = 2
    QFW_AS_ASYM: Final = 32
    QFW_AS_BYTES: Final = 128
    QFW_AS_F32: Final = 1
    QFW_AS_INDEX: Final = 64
    QFW_AS_PICK: Final = 2048
    QFW_AS_S16: Final = 4
    QFW_AS_S32: Final = 8
    QFW_AS_S8: Final = 2
    QFW_AS_SYM: Final = 16
    QFW_BACKWARD: Final = 2
    QFW_BF16: Final = 3
    QFW_BYTES: Final = 4
    QFW_CONST: Final = 1
    QFW_DEQUANTIZE: Final = 1
    QFW_DEQUANTIZE_BACKWARD: Final = 4
    QFW_DYNAMIC: Final = 0
    QFW_ERROR: Final = 4
    QFW_E_ARENA: Final = 16
    QFW_E_BATCH: Final = 21
    QFW_E_BITS: Final = 5
    QFW_E_CONTAINER: Final = 6
    QFW_E_CRC: Final = 14
    QFW_E_EMPTY: Final = 23
    QFW_E_FEATURE: Final = 25
    QFW_E_FLASH: Final = 24
    QFW_E_FLOAT: Final = 19
    QFW_E_GROUP: Final = 3
    QFW_E_KIND: Final = 4
    QFW_E_LABEL: Final = 11
    QFW_E_MAGIC: Final = 12
    QFW_E_NONFINITE: Final = 10
    QFW_E_NORM: Final = 20
    QFW_E_NULL: Final = 1
    QFW_E_ORDER: Final = 18
    QFW_E_PLAN: Final = 15
    QFW_E_RANGE: Final = 7
    QFW_E_ROWS: Final = 17
    QFW_E_SCALE: Final = 8
    QFW_E_SIZE: Final = 2
    QFW_E_STATE: Final = 22
    QFW_E_VERSION: Final = 13
    QFW_E_ZERO_POINT: Final = 9
    QFW_F16: Final = 2
    QFW_F32: Final = 0
    QFW_F64: Final = 1
    QFW_FAKE_QUANTIZE: Final = 2
    QFW_FAKE_QUANTIZE_BACKWARD: Final = 5
    QFW_FIXED: Final = 1
    QFW_FLASH_UNIT: Final = 64
    QFW_FLOAT32: Final = 0
    QFW_FORWARD: Final = 0
    QFW_GRADIENT: Final = 1
    QFW_HALF_AWAY: Final = 0
    QFW_HALF_EVEN: Final = 1
    QFW_HINDSIGHT: Final = 2
    QFW_I16: Final = 2
    QFW_I32: Final = 4
    QFW_I8: Final = 0
    QFW_INCLUSIVE: Final = 0
    QFW_INDEX: Final = 3
    QFW_INFER: Final = 4
    QFW_IO: Final = 2
    QFW_ISA_AVX2: Final = 1
    QFW_ISA_AVX512: Final = 2
    QFW_ISA_COUNT: Final = 3
    QFW_ISA_PORTABLE: Final = 0
    QFW_IS_READ: Final = 512
    QFW_IS_WRITTEN: Final = 1024
    QFW_MAY_LACK: Final = 256
    QFW_NET_BYTES: Final = 128
    QFW_NO_ROWS: Final = 0
    QFW_NO_TENSOR: Final = 65535
    QFW_OK: Final = 0
    QFW_OP_PARAMS: Final = 15
    QFW_OP_TENSORS: Final = 8
    QFW_OUTPUT: Final = 1
    QFW_PARAMETER: Final = 0
    QFW_PICK: Final = 5
    QFW_PLAN_MAGIC: Final = 1347896913
    QFW_PLAN_VERSION: Final = 1
    QFW_QUANTIZE: Final = 0
    QFW_QUANTIZE_BACKWARD: Final = 3
    QFW_ROWS_AXIS: Final = 2
    QFW_ROWS_OUTER: Final = 1
    QFW_SCRATCH: Final = 5
    QFW_SECTIONS: Final = 5
    QFW_STATE: Final = 2
    QFW_STATE_MAGIC: Final = 1398228561
    QFW_STATE_VERSION: Final = 1
    QFW_STOCHASTIC: Final = 2
    QFW_STRICT: Final = 1
    QFW_SYM: Final = 1
    QFW_U16: Final = 3
    QFW_U8: Final = 1
    QFW_UPDATE: Final = 3
    QFW_WIRE: Final = 3
    def qfw_affine_check(self, a0: Any, /) -> int: ...
    def qfw_affine_kernel(self, a0: Any, a1: Any, a2: Any, /) -> Any: ...
    def qfw_affine_params(self, a0: Any, a1: Any, a2: int, a3: int, a4: int, a5: Any, a6: Any, a7: Any, /) -> int: ...
    def qfw_affine_run(self, a0: Any, a1: Any, a2: Any, /) -> int: ...
    def qfw_affine_workspace(self, a0: Any, a1: Any, /) -> int: ...
    def qfw_arena_size(self, a0: Any, a1: Any, /) -> int: ...
    def qfw_check(self, a0: Any, a1: int, a2: Any, /) -> int: ...
    def qfw_check_finite(self, a0: Any, a1: Any, a2: int, a3: int, /) -> int: ...
    def qfw_convert(self, a0: Any, a1: Any, a2: Any, a3: Any, a4: Any, /) -> int: ...
    def qfw_cross_entropy_f32(self, a0: Any, a1: Any, a2: int, a3: int, a4: Any, a5: Any, /) -> int: ...
    def qfw_cross_entropy_s16(self, a0: Any, a1: float, a2: Any, a3: int, a4: int, a5: Any, a6: Any, a7: Any, a8: Any, /) -> int: ...
    def qfw_draws(self, a0: Any, a1: int, a2: int, a3: Any, /) -> None: ...
    def qfw_format_check(self, a0: Any, /) -> int: ...
    def qfw_gemm_f32(self, a0: Any, a1: Any, a2: Any, /) -> int: ...
    def qfw_gemm_s32(self, a0: Any, a1: Any, a2: Any, /) -> int: ...
    def qfw_get_progress(self, a0: Any, a1: Any, /) -> int: ...
    def qfw_host_compiler(self) -> Any: ...
    def qfw_host_count_block(self, a0: Any, a1: int, a2: int, a3: Any, /) -> None: ...
    def qfw_host_float_enter(self) -> int: ...
    def qfw_host_float_leave(self, a0: int, /) -> None: ...
    def qfw_host_kernels(self, a0: int, /) -> Any: ...
    def qfw_host_step(self, a0: Any, a1: Any, a2: Any, a3: Any, a4: int, a5: Any, /) -> int: ...
    def qfw_infer(self, a0: Any, a1: Any, a2: int, a3: Any, /) -> int: ...
    def qfw_kernels_name(self, a0: Any, /) -> Any: ...
    def qfw_kernels_portable(self) -> Any: ...
    def qfw_layout_check(self, a0: Any, a1: Any, a2: Any, /) -> int: ...
    def qfw_make_key(self, a0: int, a1: int, a2: int, a3: Any, /) -> None: ...
    def qfw_op_name(self, a0: int, a1: Any, /) -> Any: ...
    def qfw_open(self, a0: Any, a1: int, a2: Any, a3: Any, /) -> int: ...
    def qfw_ops_all(self) -> Any: ...
    def qfw_pack(self, a0: Any, a1: int, a2: int, a3: int, a4: Any, /) -> int: ...
    def qfw_resume(self, a0: Any, a1: Any, /) -> int: ...
    def qfw_run_section(self, a0: Any, a1: int, a2: Any, a3: int, /) -> int: ...
    def qfw_set_counters(self, a0: Any, a1: Any, a2: int, /) -> int: ...
    def qfw_set_progress(self, a0: Any, a1: Any, /) -> int: ...
    def qfw_state_size(self, a0: Any, a1: Any, /) -> int: ...
    def qfw_status_text(self, a0: int, /) -> Any: ...
    def qfw_step(self, a0: Any, a1: Any, a2: Any, a3: int, a4: Any, /) -> int: ...
    def qfw_store(self, a0: Any, a1: Any, /) -> int: ...
    def qfw_uniforms(self, a0: Any, a1: int, a2: int, a3: Any, /) -> None: ...
    def qfw_unpack(self, a0: Any, a1: int, a2: int, a3: int, a4: int, a5: Any, /) -> int: ...
    def qfw_version(self) -> Any: ...
    def qfw_walk(self, a0: Any, a1: Any, a2: int, a3: int, a4: int, a5: Any, /) -> int: ...

ffi: Any
lib: _Lib
