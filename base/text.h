// Formats counts and durations for messages.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "base/time.h"

namespace ddprun {

// Returns `n` and the noun `thing`, with a plural "s" unless `n` is 1: "1 node", "3 nodes".
std::string Counted(int64_t n, absl::string_view thing);

// Returns `d` in whole seconds, rounded down: "12 s". If `d` is less than one second, returns it in
// milliseconds: "350 ms".
std::string InSeconds(Duration d);

// Returns `d` in its two largest units: "3 min 20 s", "2 h 5 min", "3 d 4 h". Days are used only if `d` is at
// least 48 hours. If `d` is less than one minute, returns seconds with one decimal: "57.3 s". If `d` is less
// than one second, returns milliseconds: "350 ms". A negative duration counts as zero.
std::string InLargestUnits(Duration d);

// Returns `d` with at least three digits, for times that are compared: "0.412 ms", "130 ms", "12.3 s". REQUIRES: d >= 0.
std::string InThreeDigits(Duration d);

// Returns `bytes` in the largest binary unit of which there is at least one, with one decimal: "30.1 GiB". Less than 1 KiB:
// "512 bytes".
std::string InBytes(uint64_t bytes);

}  // namespace ddprun
