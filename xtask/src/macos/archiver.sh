#!/bin/sh
# The archiver beside compiler.sh.
exec "$ZIG" ar "$@"
