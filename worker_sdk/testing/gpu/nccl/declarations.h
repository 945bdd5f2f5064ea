// nccl.h, with functions that a shared library exports although the build hides symbols.
#pragma once

#pragma GCC visibility push(default)
#include <nccl.h>  // IWYU pragma: export
#pragma GCC visibility pop
