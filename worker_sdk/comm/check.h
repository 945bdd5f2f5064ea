// DDPRUN_CHECK: a broken invariant of ours ends the process, saying which.
#pragma once

#include "base/check.h"  // IWYU pragma: export
