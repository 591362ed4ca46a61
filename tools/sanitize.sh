#!/bin/sh
# The test suite against a sanitized core:  tools/sanitize.sh ubsan|asan|clang [pytest args]
#   ubsan  gcc, undefined behaviour and float casts out of range
#   asan   the same and gcc's address sanitizer
#   clang  clang, addresses, undefined behaviour, unsigned wraps and lossy conversions
# PYTHON (default python3) must have the packages of pyqfw's `dev` extra. PYTHONMALLOC=pymalloc makes
# the tests, not the core, twice as fast; then small objects of Python's are not watched, only arrays are.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
kind=${1:?ubsan, asan or clang}
shift
build=$root/build-sanitize-$kind
py=$(command -v "${PYTHON:-python3}")
case $py in /*) ;; *) py=$PWD/$py ;; esac
PATH=$(dirname "$py"):$PATH # the ninja of a virtual environment that is not activated
preload=
caught="signed_overflow float_cast"
case $kind in
ubsan)
    CC=${CC:-gcc}
    san=undefined,float-cast-overflow
    ;;
asan)
    CC=${CC:-gcc}
    san=address,undefined,float-cast-overflow
    preload=$($CC -print-file-name=libasan.so)
    caught="$caught over_read"
    ;;
clang)
    CC=${CC:-clang}
    san=address,undefined,integer,float-cast-overflow
    preload=$($CC -print-file-name="libclang_rt.asan-$(uname -m).so")
    caught="$caught over_read unsigned_wrap"
    ;;
*)
    echo "unknown kind: $kind" >&2
    exit 2
    ;;
esac
if [ -n "$preload" ] && [ ! -f "$preload" ]; then
    echo "$CC has no sanitizer runtime: $preload" >&2
    exit 1
fi
export CC PATH

mkdir -p "$build"
if [ ! -f "$build/build.ninja" ]; then
    "$py" -m mesonbuild.mesonmain setup "$build" "$root" \
        --buildtype=debug -Doptimization=1 -Db_ndebug=false -Db_lundef=false -Db_sanitize=$san \
        -Dc_args="-fno-sanitize-recover=all -fno-omit-frame-pointer" \
        -Dpython.platlibdir="$build/site" >"$build/build.log" 2>&1 || {
        cat "$build/build.log"
        exit 1
    }
fi
"$py" -m mesonbuild.mesonmain compile -C "$build" planted >"$build/build.log" 2>&1 &&
    "$py" -m mesonbuild.mesonmain install -C "$build" --quiet >>"$build/build.log" 2>&1 || {
    cat "$build/build.log"
    exit 1
}

export PYTHONPATH="$build/site${PYTHONPATH:+:$PYTHONPATH}"
# The import hook of an editable install would beat PYTHONPATH.
MESONPY_EDITABLE_SKIP=$(echo "$root"/build/cp* | tr ' ' ':')
export MESONPY_EDITABLE_SKIP
export UBSAN_OPTIONS=halt_on_error=1:abort_on_error=1:print_stacktrace=1
export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:halt_on_error=1:detect_stack_use_after_return=1
memory=${PYTHONMALLOC:-malloc}
export PYTHONMALLOC=malloc # else the heap of a bytearray is Python's own and not watched
run() { env ${preload:+LD_PRELOAD="$preload"} "$py" "$@"; }
die() {
    echo "tools/sanitize.sh $kind: $*" >&2
    exit 1
}

# The library is instrumented, and it is the one that is imported.
nm -D "$build"/site/pyqfw/_core*.so | grep -q __ubsan_handle_add_overflow ||
    die "the core is not instrumented for undefined behaviour"
if [ "$kind" != ubsan ]; then
    nm -D "$build"/site/pyqfw/_core*.so | grep -q __asan_report_load ||
        die "the core is not instrumented for addresses"
fi
(cd / && run -c 'import sys, pyqfw._core as c; sys.exit(not c.__file__.startswith(sys.argv[1]))' \
    "$build/site/") || die "another pyqfw is imported"

# It stops what it is meant to stop.
for bug in $caught; do
    run "$root/tests/planted/plant.py" "$build/libplanted.so" "$bug" 0 ||
        die "$bug: failed without a bug"
    rc=0
    run "$root/tests/planted/plant.py" "$build/libplanted.so" "$bug" 1 >"$build/planted.log" 2>&1 ||
        rc=$?
    [ $rc -ge 128 ] && grep -qE 'runtime error|AddressSanitizer' "$build/planted.log" || {
        cat "$build/planted.log"
        die "planted $bug was not caught (exit $rc)"
    }
    echo "planted $bug: caught"
done

cd "$root"
export PYTHONMALLOC="$memory"
# --capture=sys: a report written as the process dies is not swallowed.
run -m pytest --capture=sys "$@"
