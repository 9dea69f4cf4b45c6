#!/bin/sh
# RUSTC [ARGUMENT…]: compiles a crate by clippy's compiler, or by rustc where it is a library that is compiled once more with
# its tests. Warnings of both are errors.
tests= library=
for argument in "$@"; do
    case $argument in
    --test) tests=1 ;;
    lib | --crate-type=lib) library=1 ;;
    esac
done
if [ -n "$library" ] && [ -z "$tests" ]; then
    exec "$@" -D warnings
fi
exec "$CLIPPY_DRIVER" "$@"
