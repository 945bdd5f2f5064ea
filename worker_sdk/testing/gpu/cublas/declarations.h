// The functions of cuBLAS, exported.
#pragma once

#pragma GCC visibility push(default)
#include <cublas_v2.h>
#pragma GCC visibility pop
