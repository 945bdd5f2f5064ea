// What happened in a run: printed when asked for, always hashed, and where a rule was broken.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/time.h"

namespace ddprun::sim {

class Trace {
 public:
  explicit Trace(bool print) : print_(print) {}

  void Line(TimePoint now, absl::string_view text) {
    const int64_t ms = now.time_since_epoch() / milliseconds(1);
    for (const char c : absl::StrCat(ms, text))
      hash_ = (hash_ ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    if (print_)
      std::printf("%9lld.%03lld  %s\n", static_cast<long long>(ms / 1000), static_cast<long long>(ms % 1000),
                  std::string(text).c_str());
  }
  // A rule is broken; the first one counts.
  void Broken(TimePoint now, absl::string_view rule) {
    Line(now, absl::StrCat("BROKEN: ", rule));
    if (broken_.empty()) broken_ = std::string(rule);
  }
  const std::string& broken() const { return broken_; }
  uint64_t hash() const { return hash_; }

 private:
  const bool print_;
  uint64_t hash_ = 0xcbf29ce484222325;  // FNV-1a
  std::string broken_;
};

}  // namespace ddprun::sim
