#include "launcher/ctl/event_lines.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "boost/json/parse.hpp"
#include "launcher/report/terminal_text.h"

namespace ddprun {
namespace {

std::string Text(const boost::json::value& v) {
  return CleanLine({v.as_string().data(), v.as_string().size()});
}

}  // namespace

absl::StatusOr<EventLines> ParseEvents(absl::string_view json_lines) {
  EventLines lines;
  for (const absl::string_view line : absl::StrSplit(json_lines, '\n', absl::SkipEmpty())) {
    boost::system::error_code error;
    const boost::json::value event = boost::json::parse({line.data(), line.size()}, error);
    if (error) return absl::InternalError(absl::StrCat("an event is no JSON: ", error.message()));
    try {
      const boost::json::object& e = event.as_object();
      const std::string name = Text(e.at("event"));
      absl::StrAppendFormat(&lines.text, "%s %-17s %s\n", Text(e.at("time")), name, Text(e.at("reason")));
      lines.last_seq = e.at("seq").to_number<uint64_t>();
      if (name == "job_closed") lines.over = true;
    } catch (const std::exception& e) {  // as in StatusTable
      return absl::InternalError(absl::StrCat("an event is not of this version's form: ", e.what()));
    }
  }
  return lines;
}

}  // namespace ddprun
