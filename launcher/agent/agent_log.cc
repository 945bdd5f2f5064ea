#include "launcher/agent/agent_log.h"

#include <unistd.h>

#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/report/terminal_text.h"
#include "os/descriptor.h"

namespace ddprun {

AgentLog::AgentLog(std::string host, absl::string_view log_level)
    : prefix_(absl::StrCat("[ddprun ", host, "] ")),
      show_details_(absl::EqualsIgnoreCase(log_level, "DEBUG")),
      show_events_(show_details_ || absl::EqualsIgnoreCase(log_level, "INFO")) {}

void AgentLog::Say(absl::string_view text) const {
  std::string lines;
  for (const absl::string_view line : absl::StrSplit(absl::StripAsciiWhitespace(text), '\n')) {
    // Host names and reasons come from other machines and may contain control characters.
    absl::StrAppend(&lines, prefix_, CleanLine(line), "\n");
  }
  Write(lines);
}

void AgentLog::Detail(absl::string_view text) const {
  if (show_details_) Say(absl::StrCat("debug: ", text));
}

void AgentLog::Write(absl::string_view text) const {
  if (write_) return write_(text);
  // Use one write, so that the lines of several agents on a terminal do not mix. Errors are ignored.
  WriteAll(STDERR_FILENO, text);
}

void AgentLog::Event(absl::string_view event,
                     std::initializer_list<std::pair<absl::string_view, absl::string_view>> fields) const {
  if (!show_events_) return;
  std::string line = absl::StrCat("event=", event);
  for (const auto& [key, value] : fields) absl::StrAppend(&line, " ", key, "=\"", absl::CEscape(value), "\"");
  Say(line);
}

}  // namespace ddprun
