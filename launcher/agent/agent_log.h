// The agent's log on stderr. By default, the log has only lines for users. LOGLEVEL=INFO adds one event for
// each transition; LOGLEVEL=DEBUG adds events and details.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace ddprun {

//   Threads: one caller at a time.
class AgentLog {
 public:
  // `log_level`: the value of LOGLEVEL, as in torchrun. INFO shows events; DEBUG shows events and details;
  // other values show neither.
  AgentLog(std::string host, absl::string_view log_level);

  // Sets the destination of all output. If `write` is empty, which is the default, output goes to stderr with
  // blocking writes.
  void SendTo(std::function<void(absl::string_view)> write) { write_ = std::move(write); }

  // Logs "[ddprun HOST] text"; every line of `text` gets the prefix.
  void Say(absl::string_view text) const;
  // Writes `text`, such as a report, without a prefix.
  void Write(absl::string_view text) const;
  // Logs "debug: text" if details are shown.
  void Detail(absl::string_view text) const;
  bool shows_details() const { return show_details_; }
  // Logs `event=NAME key="value" ...` if events are shown.
  void Event(absl::string_view event,
             std::initializer_list<std::pair<absl::string_view, absl::string_view>> fields) const;

 private:
  const std::string prefix_;
  const bool show_details_;
  const bool show_events_;
  std::function<void(absl::string_view)> write_;
};

}  // namespace ddprun
