#!/bin/sh
# Runs a test script of this folder with the interpreter DDPRUN_PYTHON (default: Debian's python3).
# usage: run_python.sh SCRIPT
here=$(dirname "$0")
export DDPRUN_INTEROP_DIR="$here" PYTHONDONTWRITEBYTECODE=1
exec "${DDPRUN_PYTHON:-/usr/bin/python3}" "$here/$1"
