#include "launcher/ctl/page_text.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/text.h"
#include "boost/json/parse.hpp"
#include "boost/json/serialize.hpp"
#include "launcher/report/terminal_text.h"

namespace ddprun {
namespace {

std::string Text(const boost::json::value& v) {
  if (v.is_string()) return CleanLine({v.get_string().data(), v.get_string().size()});
  if (v.is_null()) return "-";
  return boost::json::serialize(v);
}

std::string OrDash(std::string text) { return text.empty() ? "-" : text; }

// Returns the node's ranks, such as "8-15" or "8"; "-" for a node that is not in a round.
std::string Ranks(const boost::json::object& node) {
  const boost::json::value& first = node.at("first_rank");
  if (first.is_null()) return "-";
  const int64_t rank = first.as_int64();
  const int64_t nproc = node.at("nproc").as_int64();
  return nproc == 1 ? absl::StrCat(rank) : absl::StrCat(rank, "-", rank + nproc - 1);
}

// The rows with columns of equal width, without spaces at the ends of lines.
template <size_t n>
std::string Table(const std::vector<std::array<std::string, n>>& rows) {
  std::array<size_t, n> widths{};
  for (const auto& row : rows) {
    for (size_t i = 0; i < n; ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line = " ";
    for (size_t i = 0; i < n; ++i) absl::StrAppendFormat(&line, " %-*s", static_cast<int>(widths[i]), row[i]);
    absl::StrAppend(&out, line.substr(0, line.find_last_not_of(' ') + 1), "\n");
  }
  return out;
}

// Returns one row per node, ordered by rank. Nodes without a rank are last, in the order of the page.
std::string NodeTable(const boost::json::array& page) {
  std::vector<const boost::json::object*> nodes;
  for (const boost::json::value& v : page) nodes.push_back(&v.as_object());
  std::stable_sort(nodes.begin(), nodes.end(), [](const auto* a, const auto* b) {
    const auto place = [](const boost::json::object& node) {
      const boost::json::value& rank = node.at("group_rank");
      return rank.is_null() ? INT64_MAX : rank.as_int64();
    };
    return place(*a) < place(*b);
  });
  std::vector<std::array<std::string, 6>> rows = {{"NODE", "ADDRESS", "STATE", "RANKS", "STEP", "PHASE"}};
  for (const boost::json::object* node : nodes) {
    const bool leaves = node->at("to_be_drained").as_bool();
    const bool excluded = node->at("excluded").as_bool();
    rows.push_back(
        {Text(node->at("host")), Text(node->at("addr")),
         absl::StrCat(Text(node->at("state")), leaves ? ", to be drained" : "", excluded ? ", excluded" : ""),
         Ranks(*node), Text(node->at("step")), OrDash(Text(node->at("phase")))});
  }
  return Table(rows);
}

// "7 %"; "-" if there is no whole.
std::string Share(int64_t part, int64_t whole) {
  return whole <= 0
             ? "-"
             : absl::StrFormat("%.0f %%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

// Returns one row per rank whose steps are timed.
std::string StepTable(const boost::json::array& page, int64_t timed) {
  std::vector<std::array<std::string, 7>> rows = {
      {"RANK", "NODE", "STEP TIME", "SPREAD", "DATA", "COMPUTE", "COMMUNICATION"}};
  for (const boost::json::value& v : page) {
    const boost::json::object& rank = v.as_object();
    const auto micros = [&rank](const char* member) { return rank.at(member).as_int64(); };
    const auto time = [&micros](const char* member) {
      return InThreeDigits(std::chrono::microseconds(std::max<int64_t>(micros(member), 0)));
    };
    const int64_t step = micros("step_us"), data = micros("data_us");
    const bool known = !rank.at("communication_us").is_null();
    const int64_t communication = known ? micros("communication_us") : 0;
    rows.push_back({Text(rank.at("rank")), Text(rank.at("host")), time("step_us"), time("spread_us"),
                    Share(data, step), known ? Share(step - data - communication, step) : "-",
                    absl::StrCat(known ? Share(communication, step) : "-",
                                 rank.at("straggler").as_bool() ? "  slower than the others" : "")});
  }
  const auto shown = static_cast<int64_t>(page.size());
  return absl::StrCat("\n", Table(rows),
                      shown < timed ? absl::StrCat("  and ", Counted(timed - shown, "more rank"), "\n") : "");
}

// Returns the line "  name: text\n"; empty if `text` is empty.
std::string Line(absl::string_view name, const boost::json::value& text) {
  const std::string shown = Text(text);
  return shown.empty() ? "" : absl::StrCat("  ", name, ": ", shown, "\n");
}

std::string JobText(const boost::json::object& job) {
  const std::string outcome = Text(job.at("outcome"));
  std::string text =
      absl::StrCat("job ", Text(job.at("run_id")), ": ", Text(job.at("state")),
                   outcome.empty() ? "" : absl::StrCat(" (", outcome, ")"), ", round ", Text(job.at("round")),
                   ", step ", Text(job.at("furthest_step")), ", restarts ", Text(job.at("restarts")), " of ",
                   Text(job.at("max_restarts")), ", nodes ", job.at("nodes").as_array().size(), " (",
                   Text(job.at("min_nodes")), " to ", Text(job.at("max_nodes")), ")\n");
  const boost::json::value* const standstill = job.if_contains("standstill");  // earlier releases have none
  absl::StrAppend(&text, Line("waiting", job.at("waiting")),
                  standstill ? Line("stands still", *standstill) : "",
                  Line("last failure", job.at("last_failure")), Line("ended", job.at("outcome_reason")),
                  Line("last event", job.at("last_transition")));
  if (!job.at("nodes").as_array().empty()) absl::StrAppend(&text, NodeTable(job.at("nodes").as_array()));
  const boost::json::value* const times = job.if_contains("step_times");
  if (times != nullptr && !times->as_array().empty())
    absl::StrAppend(&text, StepTable(times->as_array(), job.at("timed_ranks").to_number<int64_t>()));
  return text;
}

}  // namespace

absl::StatusOr<StatusView> StatusTable(absl::string_view json, absl::string_view job) {
  boost::system::error_code error;
  const boost::json::value page = boost::json::parse({json.data(), json.size()}, error);
  if (error) return absl::InternalError(absl::StrCat("the status page is not valid JSON: ", error.message()));
  try {
    StatusView view;
    std::vector<std::string> names;
    int shown = 0;
    int over = 0;
    for (const boost::json::value& v : page.as_object().at("jobs").as_array()) {
      const boost::json::string& run_id = v.as_object().at("run_id").as_string();
      names.push_back(Text(run_id));
      if (!job.empty() && absl::string_view(run_id.data(), run_id.size()) != job) continue;
      absl::StrAppend(&view.text, JobText(v.as_object()));
      ++shown;
      if (Text(v.as_object().at("state")) == "closed") ++over;
    }
    if (shown == 0 && !job.empty()) {
      return absl::NotFoundError(
          absl::StrCat("there is no job ", job, "; known jobs: ", OrDash(absl::StrJoin(names, ", "))));
    }
    if (shown == 0) view.text = "no jobs\n";
    view.all_over = shown > 0 && over == shown;
    return view;
  } catch (const std::exception& e) {  // from Boost.JSON: a member is missing or has the wrong type
    return absl::InternalError(
        absl::StrCat("the status page does not have the format of this version: ", e.what()));
  }
}

namespace {

// Throws if the member is missing or not a string.
std::string StringAt(const boost::json::object& event, const char* member) {
  const boost::json::string& text = event.at(member).as_string();
  return CleanLine({text.data(), text.size()});
}

}  // namespace

absl::StatusOr<EventLines> ParseEvents(absl::string_view json_lines) {
  EventLines lines;
  for (const absl::string_view line : absl::StrSplit(json_lines, '\n', absl::SkipEmpty())) {
    boost::system::error_code error;
    const boost::json::value event = boost::json::parse({line.data(), line.size()}, error);
    if (error) return absl::InternalError(absl::StrCat("an event is not valid JSON: ", error.message()));
    try {
      const boost::json::object& e = event.as_object();
      const std::string name = StringAt(e, "event");
      absl::StrAppendFormat(&lines.text, "%s %-17s %s\n", StringAt(e, "time"), name, StringAt(e, "reason"));
      lines.last_seq = e.at("seq").to_number<uint64_t>();
      if (name == "job_closed") lines.over = true;
    } catch (const std::exception& e) {  // see StatusTable
      return absl::InternalError(
          absl::StrCat("an event does not have the format of this version: ", e.what()));
    }
  }
  return lines;
}

}  // namespace ddprun
