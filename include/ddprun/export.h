// Marks the symbols that a shared library built from the worker SDK exports.
#pragma once

#define DDPRUN_EXPORT [[gnu::visibility("default")]]
