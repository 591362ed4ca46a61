#!/bin/sh
# The C tests on emulated boards:  tools/boards.sh [core ...]
# For each core (m0, m4f, ...; else all that have a cross file in csrc/cross) builds the library and
# tests/target with warnings as errors and runs the tests in QEMU. Fails unless every test ran and
# passed; those with a planted fault pass by finding it. Prints the checks of each test and the bytes
# of stack that it took. Needs meson, ninja, arm-none-eabi-gcc with newlib, and qemu-system-arm.
set -eu
cd "$(dirname "$0")/.."
if [ $# = 0 ]; then
    for file in csrc/cross/cortex-*.ini; do
        file=${file##*/cortex-}
        set -- "$@" "${file%.ini}"
    done
fi

die() { # die <message> [log]
    [ $# = 1 ] || cat "$2" >&2
    echo "tools/boards.sh: $1" >&2
    exit 1
}
for tool in meson ninja arm-none-eabi-gcc qemu-system-arm; do
    command -v $tool >/dev/null || die "$tool is missing"
done

for core in "$@"; do
    cross=csrc/cross/cortex-$core.ini build=build-board-$core
    [ -f "$cross" ] || die "no core $core: $cross is missing"
    log=$build/board.log
    mkdir -p "$build"
    [ -f "$build/build.ninja" ] || meson setup "$build" --cross-file "$cross" -Dwerror=true \
        >"$log" 2>&1 || die "$core: not configured" "$log"
    rm -f "$build/meson-logs/testlog.txt"
    meson test -C "$build" --timeout-multiplier 4 --print-errorlogs >"$log" 2>&1 ||
        die "$core: failed" "$log"
    # To meson a skipped test is no failure.
    passed=$(awk '$1 == "Ok:" { print $2 }' "$log")
    [ "$passed" = "$(meson test -C "$build" --list 2>/dev/null | grep -c .)" ] ||
        die "$core: only $passed tests passed" "$log"
    awk -v core="$core" '$1 == "test:" { name = $2; sub(/.*:/, "", name) }
        /^[0-9]+ passed, [0-9]+ failed$/ {
            if (name ~ /_planted_/) planted++; else text = text name ": " $0
        }
        /^[0-9]+ of [0-9]+ bytes of stack$/ && name !~ /_planted_/ { text = text ", stack " $1 "; " }
        END { print core ": " text planted " planted faults found" }' "$build/meson-logs/testlog.txt"
done
