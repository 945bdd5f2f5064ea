// The trace of a run. Its lines are hashed and optionally passed to a sink. Also records the first violated
// rule.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/time.h"

namespace ddprun::sim {

class Trace {
 public:
  using Sink = std::function<void(TimePoint now, absl::string_view text)>;

  explicit Trace(bool print) : sink_(print ? Sink(Print) : nullptr) {}
  // Passes details to `sink` as well.
  explicit Trace(Sink sink) : sink_(std::move(sink)), details_(true) {}

  void Line(TimePoint now, absl::string_view text) {
    const int64_t ms = now.time_since_epoch() / milliseconds(1);
    for (const char c : absl::StrCat(ms, text))
      hash_ = (hash_ ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    if (sink_) sink_(now, text);
  }
  // Details are lines about messages and about starts and exits of workers. They are not hashed, and only the
  // sink of the second constructor receives them.
  bool has_details() const { return details_; }
  void Detail(TimePoint now, absl::string_view text) {
    if (details_) sink_(now, text);
  }
  // Records a violated rule. broken() returns the first one.
  void Broken(TimePoint now, absl::string_view rule) {
    Line(now, absl::StrCat("BROKEN: ", rule));
    if (broken_.empty()) broken_ = std::string(rule);
  }
  const std::string& broken() const { return broken_; }
  uint64_t hash() const { return hash_; }

 private:
  static void Print(TimePoint now, absl::string_view text) {
    const int64_t ms = now.time_since_epoch() / milliseconds(1);
    std::printf("%9lld.%03lld  %s\n", static_cast<long long>(ms / 1000), static_cast<long long>(ms % 1000),
                std::string(text).c_str());
  }

  const Sink sink_;
  const bool details_ = false;
  uint64_t hash_ = 0xcbf29ce484222325;  // FNV-1a
  std::string broken_;
};

}  // namespace ddprun::sim
