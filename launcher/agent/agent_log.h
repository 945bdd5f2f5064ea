// What the agent says to people on stderr: a few lines that matter by default, every transition with
// LOGLEVEL=INFO.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace ddprun {

class AgentLog {
 public:
  // `log_level` as torchrun's LOGLEVEL: DEBUG and INFO show events, everything else does not.
  AgentLog(std::string host, absl::string_view log_level);

  // "[ddprun HOST] text"; every line of `text` gets the prefix.
  void Say(absl::string_view text) const;
  // Text of a form of its own, such as a report.
  void Write(absl::string_view text) const;
  // `event=NAME key="value" ...`, if events are shown.
  void Event(absl::string_view event,
             std::initializer_list<std::pair<absl::string_view, absl::string_view>> fields) const;

 private:
  const std::string prefix_;
  const bool show_events_;
};

}  // namespace ddprun
