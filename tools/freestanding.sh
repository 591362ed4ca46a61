#!/bin/sh
# The portable core on bare metal:  tools/freestanding.sh [csrc folder]
# Compiles it for Cortex-M0 and Cortex-M4 without a system, and fails if it needs more than the
# symbols listed here, has a variable of its own, or divides floats outside the functions listed
# here. Without an argument it takes the project's csrc and then shows that planted faults are
# found. Needs arm-none-eabi-gcc and its binutils.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
csrc=$(cd "${1:-$root/csrc}" && pwd)
arm=${CROSS:-arm-none-eabi-}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

flags="-std=c99 -O2 -ffreestanding -DNDEBUG -mthumb -ffp-contract=off -fno-math-errno
-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes
-Wcast-qual -Wpointer-arith -Wdouble-promotion -Wundef -Werror"

# Soft floats round a subnormal quotient differently: these answer for it (the last one is a
# self-test whose quotient is normal).
dividers='qfw_div_f32|qfw_div_f64|qfw_reciprocal_f64|qfw_floats_are_ieee'

# From libc and libm. The rest is what the compiler calls on its own account: the run-time ABI of
# the Arm EABI (integers wider than a register, floats without an FPU) and libgcc.
cat >"$tmp/allowed" <<'SYMBOLS'
memcpy
memmove
memset
sqrtf
__aeabi_idiv
__aeabi_idivmod
__aeabi_uidiv
__aeabi_uidivmod
__aeabi_ldivmod
__aeabi_uldivmod
__aeabi_lmul
__aeabi_llsl
__aeabi_llsr
__aeabi_lasr
__aeabi_lcmp
__aeabi_ulcmp
__aeabi_fadd
__aeabi_fsub
__aeabi_frsub
__aeabi_fmul
__aeabi_fdiv
__aeabi_fcmpeq
__aeabi_fcmpge
__aeabi_fcmpgt
__aeabi_fcmple
__aeabi_fcmplt
__aeabi_fcmpun
__aeabi_f2iz
__aeabi_f2uiz
__aeabi_f2lz
__aeabi_f2ulz
__aeabi_i2f
__aeabi_ui2f
__aeabi_l2f
__aeabi_ul2f
__aeabi_dadd
__aeabi_dsub
__aeabi_drsub
__aeabi_dmul
__aeabi_ddiv
__aeabi_dcmpeq
__aeabi_dcmpge
__aeabi_dcmpgt
__aeabi_dcmple
__aeabi_dcmplt
__aeabi_dcmpun
__aeabi_d2f
__aeabi_f2d
__aeabi_d2iz
__aeabi_d2uiz
__aeabi_d2lz
__aeabi_d2ulz
__aeabi_i2d
__aeabi_ui2d
__aeabi_l2d
__aeabi_ul2d
__clzsi2
__clzdi2
__ctzsi2
__ctzdi2
__popcountsi2
__gnu_thumb1_case_si
__gnu_thumb1_case_shi
__gnu_thumb1_case_sqi
__gnu_thumb1_case_uhi
__gnu_thumb1_case_uqi
SYMBOLS

sources=$(cd "$csrc" && find base kernels engine -name '*.c' ! -name '*_avx2.c' ! -name '*_avx512.c' 2>/dev/null | sort)
[ -n "$sources" ] || {
    echo "no sources in $csrc" >&2
    exit 1
}

bad=0
check() { # check <cpu> <flags>
    cpu=$1
    shift
    mkdir "$tmp/$cpu"
    for source in $sources; do
        object=$tmp/$cpu/$(echo "$source" | tr / _).o
        # shellcheck disable=SC2086 # $flags is a list
        "${arm}gcc" -mcpu="$cpu" "$@" $flags -I"$csrc" -I"$csrc/include" -c "$csrc/$source" \
            -fdump-tree-gimple-raw="$object.gimple" -o "$object" || bad=1
    done
    [ $bad = 0 ] || return 0
    "${arm}ld" -r -o "$tmp/$cpu.o" "$tmp/$cpu"/*.o
    "${arm}nm" --undefined-only --format=posix "$tmp/$cpu.o" | cut -d' ' -f1 >"$tmp/undefined"
    forbidden=$(grep -vxFf "$tmp/allowed" "$tmp/undefined" || true)
    if [ -n "$forbidden" ]; then
        echo "$cpu: the core needs what bare metal has not:" $forbidden >&2
        "${arm}nm" --undefined-only --print-file-name "$tmp/$cpu"/*.o |
            grep -wF "$forbidden" | sed "s|$tmp/$cpu/||" >&2
        bad=1
    fi
    # Types of variables: data, zeroed data, common, and the small and weak kinds of them.
    variables=$("${arm}nm" --defined-only --format=posix "$tmp/$cpu.o" |
        awk '$1 !~ /^\$/ && $2 ~ /^[BbCcDdGgSsVv]$/ { print $1 }')
    writable=$("${arm}size" -A "$tmp/$cpu.o" |
        awk '$1 ~ /^\.(data|bss|tdata|tbss|init_array|fini_array)/ && $2 > 0 { print $1 "=" $2 }')
    if [ -n "$variables$writable" ]; then
        echo "$cpu: the core has variables of its own:" $variables $writable >&2
        bad=1
    fi
    # In the compiler's own words: a line that ends in ")" at column 1 starts a function, and
    # rdiv_expr is a division of floats.
    divisions=$(awk -v dividers="^($dividers)\$" '/^[A-Za-z_].*\)$/ { f = $0; sub(/ *\(.*/, "", f); sub(/.*[ *]/, "", f) }
        /<rdiv_expr,/ && f !~ dividers { print f }' "$tmp/$cpu"/*.gimple | sort -u)
    if [ -n "$divisions" ]; then
        echo "$cpu: float division outside $dividers:" $divisions >&2
        bad=1
    fi
    text=$("${arm}size" "$tmp/$cpu.o" | awk 'NR == 2 { print $1 }')
    if [ $bad = 0 ]; then
        echo "$cpu: ok, $text bytes of code and constants; undefined:" $(sort "$tmp/undefined")
    fi
}

check cortex-m0 -mfloat-abi=soft
check cortex-m4 -mfpu=fpv4-sp-d16 -mfloat-abi=hard
[ $bad = 0 ] || exit 1

# With the project's own sources: the checks do find what they look for.
[ $# = 0 ] || exit 0
planted() { # planted <what the report must say> <C text>
    rm -rf "$tmp/planted"
    cp -r "$csrc" "$tmp/planted"
    printf '%s\n' "$2" >"$tmp/planted/base/planted.c"
    if "$0" "$tmp/planted" >"$tmp/report" 2>&1 || ! grep -q "$1" "$tmp/report"; then
        cat "$tmp/report"
        echo "not found, though planted: $1" >&2
        exit 1
    fi
    echo "planted, and found: $1"
}
planted 'bare metal has not: malloc' '#include <stdlib.h>
void *planted(void); void *planted(void) { return malloc(1); }'
planted 'variables of its own: n' 'int planted(void); int planted(void) { static int n; return n++; }'
planted 'float division outside .*: planted' \
    'float planted(float x); float planted(float x) { return 3 / x; }'
planted 'Werror=conversion' 'short planted(int x); short planted(int x) { return x; }'
