#!/bin/sh
# A compiler for macOS on Arm: clang of the wheel ziglang, as ZIG names it. Called as `c++`, it compiles C++.
#
# What dependencies bring in C and C++ is not compiled: clippy links nothing, and their authors compile it for macOS.
# With a target, it would leave an object in the working folder.
if [ "$*" = --version ]; then
    exec "$ZIG" version
fi
case "$0" in
*c++) mode=c++ ;;
*) mode=cc ;;
esac
before='' object='' own='' compiles=''
for word in "$@"; do
    shift
    case "$before" in
    # Compilers for Macs take these; this one has its target from below.
    -arch | -isysroot)
        before=''
        continue
        ;;
    -o) object=$word ;;
    esac
    before=$word
    case "$word" in
    -arch | -isysroot | --target=* | -mmacosx-version-min=* | -mmacos-version-min=*) continue ;;
    -c) compiles=1 ;;
    */mlx-sys/shim/* | */cxxbridge/*) own=1 ;;
    esac
    set -- "$@" "$word"
done
if [ -n "$compiles" ] && [ -n "$object" ] && [ -z "$own" ]; then
    : >"$object"
    exit 0
fi
# Nothing runs it: code for sanitizers and debuggers would only take time.
exec "$ZIG" "$mode" -target aarch64-macos.14.0 -fno-sanitize=all -g0 "$@"
