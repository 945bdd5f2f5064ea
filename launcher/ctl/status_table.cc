#include "launcher/ctl/status_table.h"

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "boost/json/parse.hpp"
#include "boost/json/serialize.hpp"
#include "boost/json/value_to.hpp"

namespace ddprun {
namespace {

using Row = std::array<std::string, 6>;

std::string Text(const boost::json::value& v) {
  if (v.is_string()) return std::string(v.get_string().begin(), v.get_string().end());
  if (v.is_null()) return "-";
  return boost::json::serialize(v);
}

std::string NodeTable(const boost::json::array& nodes) {
  std::vector<Row> rows = {{"NODE", "ADDRESS", "STATE", "GROUP_RANK", "WORKERS", "LEASE_LEFT_MS"}};
  for (const boost::json::value& v : nodes) {
    const boost::json::object& node = v.as_object();
    const auto* lease = node.if_contains("lease_left_ms");
    rows.push_back({Text(node.at("host")), Text(node.at("addr")), Text(node.at("state")),
                    Text(node.at("group_rank")), Text(node.at("nproc")),
                    lease == nullptr ? "-" : Text(*lease)});
  }
  std::array<size_t, std::tuple_size_v<Row>> widths{};
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const Row& row : rows) {
    std::string line = " ";
    for (size_t i = 0; i < row.size(); ++i)
      absl::StrAppendFormat(&line, " %-*s", static_cast<int>(widths[i]), row[i]);
    absl::StrAppend(&out, line.substr(0, line.find_last_not_of(' ') + 1), "\n");
  }
  return out;
}

}  // namespace

absl::StatusOr<std::string> StatusTable(absl::string_view json) {
  boost::system::error_code error;
  const boost::json::value page = boost::json::parse({json.data(), json.size()}, error);
  if (error) return absl::InvalidArgumentError(absl::StrCat("the status page is no JSON: ", error.message()));
  try {
    const boost::json::array& jobs = page.as_object().at("jobs").as_array();
    std::string out;
    for (const boost::json::value& v : jobs) {
      const boost::json::object& job = v.as_object();
      absl::StrAppend(&out, "job ", Text(job.at("run_id")), ": ", Text(job.at("state")), ", round ",
                      Text(job.at("round")), ", restarts ", Text(job.at("restarts")), " of ",
                      Text(job.at("max_restarts")), ", nodes ", Text(job.at("min_nodes")), " to ",
                      Text(job.at("max_nodes")), "\n");
      if (const std::string last = Text(job.at("last_transition")); !last.empty()) {
        absl::StrAppend(&out, "  last transition, ", Text(job.at("last_transition_ms_ago")),
                        " ms ago: ", last, "\n");
      }
      if (const std::string failure = Text(job.at("last_failure")); !failure.empty()) {
        absl::StrAppend(&out, "  last failure: ", failure, "\n");
      }
      absl::StrAppend(&out, NodeTable(job.at("nodes").as_array()));
    }
    return jobs.empty() ? "no jobs\n" : out;
  } catch (const std::exception& e) {  // Boost.JSON's way to say that a member is missing or of another kind
    return absl::InvalidArgumentError(
        absl::StrCat("the status page is not of this version's form: ", e.what()));
  }
}

}  // namespace ddprun
