#include "rendezvous/core/hang_finding.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text.h"

namespace ddprun {
namespace {

using State = WorkerEvidence::State;
using Ranks = std::vector<const RankEvidence*>;

constexpr size_t kMaxGroups = 4;      // of each of the two sides, in the text
constexpr size_t kMaxNamedRanks = 8;  // of a group

bool InOperation(const RankEvidence& e) { return e.worker.operation && e.worker.operation->in_flight; }
// Known to be in none.
bool InNoOperation(const RankEvidence& e) { return e.worker.operation && !e.worker.operation->in_flight; }

// What the worker does, as a verb phrase without the verb's ending: `many` selects "wait" or "waits".
std::string Does(const WorkerEvidence& worker, bool many) {
  const auto verb = [many](absl::string_view one, absl::string_view several) {
    return std::string(many ? several : one);
  };
  const std::string in = worker.place.empty() ? "" : absl::StrCat(" in ", worker.place);
  switch (worker.state) {
    case State::kStopped:
      return absl::StrCat(verb("is", "are"), " stopped by a signal");
    case State::kTraced:
      return absl::StrCat(verb("is", "are"), " attached to a debugger",
                          worker.place.empty() ? "" : absl::StrCat(": ", worker.place));
    case State::kBlocked:
      return absl::StrCat(verb("is", "are"), " blocked in the kernel", in);
    case State::kEnded:
      return absl::StrCat(verb("has", "have"), " ended");
    case State::kRunning:
    case State::kSleeping:
    case State::kUnknown:
      break;
  }
  if (worker.operation && worker.operation->in_flight) {
    return absl::StrCat(verb("waits", "wait"), " in ", worker.operation->kind, ", operation ",
                        worker.operation->number);
  }
  if (worker.state == State::kRunning)
    return absl::StrCat(verb("uses the processor", "use the processor"), in);
  if (!in.empty()) return absl::StrCat(verb("is", "are"), in);
  return worker.state == State::kSleeping ? verb("sleeps", "sleep") : verb("shows no state", "show no state");
}

std::string At(const WorkerEvidence& worker) {
  return absl::StrCat(worker.step ? absl::StrCat(", at step ", *worker.step) : "",
                      worker.gpu_busy ? absl::StrCat(", its GPU ", *worker.gpu_busy, " % busy") : "");
}

// The sentences for `ranks`, the largest group first.
void Describe(const Ranks& ranks, bool named, std::vector<std::string>& sentences) {
  std::map<std::string, Ranks> groups;
  for (const RankEvidence* e : ranks) groups[Does(e->worker, /*many=*/false)].push_back(e);
  std::vector<const Ranks*> sorted;
  for (const auto& [text, group] : groups) sorted.push_back(&group);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Ranks* a, const Ranks* b) { return a->size() > b->size(); });
  size_t left = ranks.size();
  for (size_t i = 0; i < sorted.size() && i < kMaxGroups; ++i) {
    const Ranks& group = *sorted[i];
    left -= group.size();
    const RankEvidence& first = *group[0];
    const bool many = group.size() > 1;
    if (!named) {
      sentences.push_back(absl::StrCat(Counted(group.size(), "other"), " ", Does(first.worker, many)));
    } else if (!many) {
      sentences.push_back(absl::StrCat("rank ", first.rank.value(), " on ", first.host, " ",
                                       Does(first.worker, many), At(first.worker)));
    } else {
      std::string list;
      for (size_t j = 0; j < group.size() && j < kMaxNamedRanks; ++j) {
        absl::StrAppend(&list, j == 0 ? "" : ", ", group[j]->rank.value(), " (", group[j]->host, ")");
      }
      if (group.size() > kMaxNamedRanks)
        absl::StrAppend(&list, " and ", group.size() - kMaxNamedRanks, " more");
      sentences.push_back(absl::StrCat("ranks ", list, " ", Does(first.worker, many)));
    }
  }
  if (left > 0)
    sentences.push_back(absl::StrCat(left, named ? " more are elsewhere" : " others are elsewhere"));
}

using Rule = std::function<bool(const RankEvidence&)>;

// The ranks that are not in the largest of the groups with equal keys, if that group has more than half of the ranks.
Ranks Outside(const Ranks& ranks, const std::function<std::string(const RankEvidence&)>& key) {
  std::map<std::string, size_t> sizes;
  for (const RankEvidence* e : ranks) ++sizes[key(*e)];
  Ranks outside;
  const auto most = std::max_element(sizes.begin(), sizes.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == sizes.end() || most->second * 2 <= ranks.size()) return {};
  for (const RankEvidence* e : ranks) {
    if (key(*e) != most->first) outside.push_back(e);
  }
  return outside;
}

Ranks Where(const Ranks& ranks, const Rule& rule) {
  Ranks found;
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(found),
               [&rule](const RankEvidence* e) { return rule(*e); });
  return found;
}

Ranks AtLowestStep(const Ranks& ranks) {
  std::optional<int64_t> lowest, highest;
  for (const RankEvidence* e : ranks) {
    if (!e->worker.step) continue;
    lowest = std::min(*e->worker.step, lowest.value_or(*e->worker.step));
    highest = std::max(*e->worker.step, highest.value_or(*e->worker.step));
  }
  if (lowest == highest) return {};
  return Where(ranks, [&lowest](const RankEvidence& e) { return e.worker.step == lowest; });
}

// Only if the stacks of all ranks are known and of one kind, and by as many bytes as all have, because stacks may have been cut.
Ranks WithAnotherStack(const Ranks& ranks) {
  const auto is_python = [](const RankEvidence* e) { return absl::StrContains(e->worker.stack, ".py:"); };
  const bool first = is_python(ranks[0]);
  size_t shortest = ranks[0]->worker.stack.size();
  for (const RankEvidence* e : ranks) {
    if (e->worker.stack.empty() || is_python(e) != first) return {};
    shortest = std::min(shortest, e->worker.stack.size());
  }
  return Outside(ranks, [shortest](const RankEvidence& e) { return e.worker.stack.substr(0, shortest); });
}

struct Laggards {
  Ranks ranks = {};
  bool proven = false;        // stopped, or blocked in the kernel
  bool by_operation = false;  // in another operation than the others, or in none
};

Laggards Behind(const Ranks& ranks) {
  if (ranks.size() <= 1) return {.ranks = ranks};
  const auto some = [&ranks](const Ranks& found) {
    return !found.empty() && found.size() * 2 <= ranks.size();
  };
  const Ranks stopped = Where(ranks, [](const RankEvidence& e) { return e.worker.state == State::kStopped; });
  if (!stopped.empty() && stopped.size() < ranks.size()) return {.ranks = stopped, .proven = true};
  if (Ranks found = Where(ranks, [](const RankEvidence& e) { return e.worker.state == State::kBlocked; });
      some(found))
    return {.ranks = found, .proven = true};
  if (Ranks found = Where(ranks, InNoOperation); some(found)) return {.ranks = found, .by_operation = true};
  const auto operation = [](const RankEvidence& e) {
    return InOperation(e) ? absl::StrCat(e.worker.operation->number, " ", e.worker.operation->kind) : "";
  };
  // With a majority in none, the ranks in an operation wait for the others.
  const bool most_are_in_one = Where(ranks, InOperation).size() * 2 > ranks.size();
  const bool known = std::all_of(ranks.begin(), ranks.end(),
                                 [](const RankEvidence* e) { return e->worker.operation.has_value(); });
  if (Ranks found = Outside(ranks, operation); known && most_are_in_one && some(found))
    return {.ranks = found, .by_operation = true};
  const std::string first = operation(*ranks[0]);
  const bool same =
      std::all_of(ranks.begin(), ranks.end(), [&](const RankEvidence* e) { return operation(*e) == first; });
  if (Ranks found = AtLowestStep(ranks); same && !found.empty() && found.size() * 2 < ranks.size())
    return {.ranks = found};
  if (Ranks found = WithAnotherStack(ranks); some(found)) return {.ranks = found};
  return {};
}

}  // namespace

HangFinding FindWhoIsBehind(const std::vector<RankEvidence>& ranks) {
  HangFinding finding;
  Ranks alive, ended;
  for (const RankEvidence& e : ranks) {
    (e.worker.state == State::kEnded ? ended : alive).push_back(&e);
    finding.traced |= e.worker.state == State::kTraced;
  }
  const auto [behind, proven, by_operation] = Behind(alive);
  finding.proven = proven;
  finding.kill = proven || by_operation;
  for (const RankEvidence* e : behind) finding.behind.push_back(*e);
  std::vector<std::string> sentences;
  Describe(behind, /*named=*/true, sentences);
  Ranks others;
  std::set_difference(alive.begin(), alive.end(), behind.begin(), behind.end(), std::back_inserter(others),
                      [](const RankEvidence* a, const RankEvidence* b) { return a->rank < b->rank; });
  Describe(others, /*named=*/behind.empty(), sentences);
  Describe(ended, /*named=*/true, sentences);
  finding.text = absl::StrJoin(sentences, "; ");
  return finding;
}

}  // namespace ddprun
