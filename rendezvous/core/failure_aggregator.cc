#include "rendezvous/core/failure_aggregator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/exit_info.h"
#include "base/text.h"

namespace ddprun {
namespace {

// Returns `text` with each word that contains a digit (address, pid, port, rank, host name) replaced by "#".
std::string WithoutNumbers(absl::string_view text) {
  std::string out;
  const auto in_word = [](char c) { return absl::ascii_isalnum(c) || c == '_'; };
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && in_word(text[end])) ++end;
    if (end == i) {
      out.push_back(text[i++]);
      continue;
    }
    const absl::string_view word = text.substr(i, end - i);
    const bool number = std::any_of(word.begin(), word.end(), [](char c) { return absl::ascii_isdigit(c); });
    absl::StrAppend(&out, number ? "#" : word);
    i = end;
  }
  return out;
}

// Returns the key of the failure's group. Failures that differ only in the worker have equal keys.
std::string KeyOf(const Failure& f) {
  return absl::StrCat(static_cast<int>(f.origin), "|", f.exit.index(), "|", TorchExitCode(f.exit), "|",
                      WithoutNumbers(f.exception));
}

}  // namespace

void FailureAggregator::ToldAtOnce(const NodeId& node, Failure failure) {
  at_once_.try_emplace(node, std::move(failure));
}

void FailureAggregator::Told(const NodeId& node, std::vector<Failure> failures) {
  if (failures.empty()) return;
  at_once_.erase(node);
  for (const Failure& failure : failures) Fold(groups_, more_failures_, failure);
}

void FailureAggregator::Lost(std::string line) {
  ++num_lost_nodes_;
  if (lost_nodes_.size() < JobReport::kMaxLostNodes) lost_nodes_.push_back(std::move(line));
}

void FailureAggregator::Fold(Groups& groups, int& more, const Failure& failure) {
  const auto [it, is_new] = groups.try_emplace(KeyOf(failure));
  Entry& entry = it->second;
  if (is_new || Precedes(failure, entry.first)) entry.first = failure;
  ++entry.count;
  entry.ranks.insert(failure.rank);
  if (entry.ranks.size() > JobReport::kMaxRanks) entry.ranks.erase(std::prev(entry.ranks.end()));
  if (groups.size() <= JobReport::kMaxGroups) return;
  const auto last = std::max_element(groups.begin(), groups.end(), [](const auto& a, const auto& b) {
    return Precedes(a.second.first, b.second.first);
  });
  more += last->second.count;
  groups.erase(last);
}

JobReport FailureAggregator::Report(Round round) const {
  JobReport report{.round = round,
                   .groups = {},
                   .more_failures = more_failures_,
                   .lost_nodes = lost_nodes_,
                   .outcome = {}};
  Groups groups = groups_;
  for (const auto& [node, failure] : at_once_) Fold(groups, report.more_failures, failure);
  for (auto& [key, entry] : groups) {
    report.groups.push_back(
        {std::move(entry.first), entry.count, std::vector<Rank>(entry.ranks.begin(), entry.ranks.end())});
  }
  std::sort(report.groups.begin(), report.groups.end(),
            [](const auto& a, const auto& b) { return Precedes(a.first, b.first); });
  for (size_t i = JobReport::kMaxTails; i < report.groups.size(); ++i) {
    report.groups[i].first.stderr_tail.clear();
  }
  if (const int more = num_lost_nodes_ - static_cast<int>(lost_nodes_.size()); more > 0) {
    report.lost_nodes.push_back(absl::StrCat("and ", Counted(more, "more node")));
  }
  return report;
}

std::string Summary(const JobReport& report) {
  std::string text = absl::StrCat("round ", report.round.value(), ": ");
  int failures = report.more_failures;
  for (const JobReport::Group& group : report.groups) failures += group.count;
  if (!report.groups.empty()) {
    const Failure& first = report.groups[0].first;
    absl::StrAppend(&text, first.cause, first.exception.empty() ? "" : ": ", first.exception);
    if (failures > 1) absl::StrAppend(&text, "; ", failures, " failures in all");
    absl::StrAppend(&text, "; ");
  }
  for (const std::string& line : report.lost_nodes) absl::StrAppend(&text, line, "; ");
  absl::StrAppend(&text, report.outcome);
  return text;
}

}  // namespace ddprun
