#!/bin/sh
# Runs a test script of this folder: run_python.sh SCRIPT. DDPRUN_PYTHON replaces Debian's interpreter.
here=$(dirname "$0")
export DDPRUN_INTEROP_DIR="$here" PYTHONDONTWRITEBYTECODE=1
exec "${DDPRUN_PYTHON:-/usr/bin/python3}" "$here/$1"
