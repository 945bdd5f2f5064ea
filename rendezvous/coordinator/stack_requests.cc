#include "rendezvous/coordinator/stack_requests.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/text.h"
#include "proto/utf8.h"

namespace ddprun {
namespace {

constexpr size_t kMaxLineBytes = 512;
constexpr size_t kMaxNamedRanks = 16;
constexpr int kMaxMissing = 16;  // lines of a node
constexpr size_t kMaxText = size_t{3} << 20;

std::string Line(absl::string_view text) { return Utf8Line(text, kMaxLineBytes); }

// "rank 3 on node1", "ranks 0-2 and 5"
std::string RanksText(const std::vector<int64_t>& ranks, const std::map<int64_t, std::string>& hosts) {
  if (ranks.size() == 1) return absl::StrCat("rank ", ranks[0], " on ", hosts.at(ranks[0]));
  std::vector<std::string> ranges;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    ranges.push_back(end - i > 2 ? absl::StrCat(ranks[i], "-", ranks[end - 1])
                                 : absl::StrJoin(ranks.begin() + static_cast<ptrdiff_t>(i),
                                                 ranks.begin() + static_cast<ptrdiff_t>(end), ", "));
    i = end;
  }
  if (ranges.size() > kMaxNamedRanks) {
    ranges.resize(kMaxNamedRanks);
    ranges.emplace_back("...");
  }
  return absl::StrCat("ranks ", absl::StrJoin(ranges, ", "));
}

// Threads with the same name and stack.
struct Group {
  bool main = false;
  std::string name;
  std::string stack;
  std::vector<int64_t> ranks;  // a rank may have several such threads
};

}  // namespace

std::string StacksText(const std::vector<StackNode>& nodes) {
  std::map<int64_t, std::string> hosts;  // by rank
  std::map<std::pair<std::string, std::string>, Group> groups;
  std::map<std::string, std::vector<std::string>> remarks;  // what is said of hosts
  for (const StackNode& node : nodes) {
    if (!node.answer) {
      remarks[node.why_not].push_back(node.host);
      continue;
    }
    std::vector<std::string> pauses;
    for (const proto::WorkerStacks& worker : node.answer->workers()) {
      if (worker.local_rank() < 0 || worker.local_rank() >= node.nproc) continue;  // not of this node
      const int64_t rank = node.first_rank.value() + worker.local_rank();
      hosts[rank] = node.host;
      if (worker.has_paused_ms())
        pauses.push_back(absl::StrCat("rank ", rank, " for ", worker.paused_ms(), " ms"));
      for (const auto& thread : worker.threads()) {
        const std::string name = Line(thread.name());
        Group& group = groups[{absl::StrCat(thread.main() ? "main" : name), thread.stack()}];
        group.main |= thread.main();
        group.name = name;
        group.stack = thread.stack();
        group.ranks.push_back(rank);
      }
    }
    if (!pauses.empty())
      remarks[Line(absl::StrCat("paused ", absl::StrJoin(pauses, ", ")))].push_back(node.host);
    for (int i = 0; i < std::min(node.answer->missing_size(), kMaxMissing); ++i)
      remarks[Line(node.answer->missing(i))].push_back(node.host);
  }
  std::vector<Group> sorted;
  for (auto& [key, group] : groups) {
    std::sort(group.ranks.begin(), group.ranks.end());
    sorted.push_back(std::move(group));
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const Group& a, const Group& b) {
    if (a.main != b.main) return a.main;
    if (a.ranks.size() != b.ranks.size()) return a.ranks.size() < b.ranks.size();
    return a.ranks < b.ranks;
  });
  std::string text;
  for (Group& group : sorted) {
    const size_t threads = group.ranks.size();
    group.ranks.erase(std::unique(group.ranks.begin(), group.ranks.end()), group.ranks.end());
    absl::StrAppend(&text, RanksText(group.ranks, hosts), ": ",
                    group.main           ? "main thread"
                    : group.name.empty() ? "thread"
                                         : absl::StrCat("thread ", group.name),
                    threads > group.ranks.size() ? absl::StrCat(", ", threads, " threads") : "", "\n");
    for (const absl::string_view frame : absl::StrSplit(group.stack, '\n', absl::SkipEmpty()))
      absl::StrAppend(&text, "    ", Line(frame), "\n");
  }
  for (const auto& [remark, hosts_of] : remarks) {
    absl::StrAppend(&text, hosts_of[0],
                    hosts_of.size() == 1 ? "" : absl::StrCat(" and ", hosts_of.size() - 1, " more"), ": ",
                    remark, "\n");
  }
  if (text.size() > kMaxText) {
    text.resize(text.rfind('\n', kMaxText) + 1);
    absl::StrAppend(&text, "... the stacks of all ranks are too long: ask for one rank\n");
  }
  return text.empty() ? "no stacks\n" : text;
}

int64_t StackRequests::MaxBytes(size_t nodes) {
  return std::clamp(kAllBytes / static_cast<int64_t>(nodes), kMinBytes, kMaxNodeBytes);
}

int64_t StackRequests::Begin(std::map<uint64_t, StackNode> nodes, Duration limit, Reply reply,
                             TimePoint now) {
  requests_[++last_] = {
      .nodes = std::move(nodes), .reply = std::move(reply), .limit = limit, .end = now + limit};
  return last_;
}

void StackRequests::Came(uint64_t peer, const proto::Stacks& answer) {
  const auto request = requests_.find(answer.request());
  if (request == requests_.end()) return;
  const auto node = request->second.nodes.find(peer);
  if (node == request->second.nodes.end() || node->second.answer) return;
  node->second.answer = answer;
  AnswerIfComplete(answer.request());
}

void StackRequests::Lost(uint64_t peer) {
  std::vector<int64_t> numbers;
  for (auto& [number, request] : requests_) {
    const auto node = request.nodes.find(peer);
    if (node == request.nodes.end() || node->second.answer) continue;
    node->second.why_not = "no answer: its agent has disconnected";
    numbers.push_back(number);
  }
  for (const int64_t number : numbers) AnswerIfComplete(number);
}

void StackRequests::Tick(TimePoint now) {
  std::vector<int64_t> due;
  for (const auto& [number, request] : requests_) {
    if (now >= request.end) due.push_back(number);
  }
  for (const int64_t number : due) Answer(number);
}

void StackRequests::EndAll(const absl::Status& why) {
  for (auto& [number, request] : std::exchange(requests_, {})) request.reply(why);
}

std::optional<TimePoint> StackRequests::NextDeadline() const {
  std::optional<TimePoint> next;
  for (const auto& [number, request] : requests_) next = std::min(request.end, next.value_or(request.end));
  return next;
}

void StackRequests::AnswerIfComplete(int64_t number) {
  const auto request = requests_.find(number);
  if (request == requests_.end()) return;
  for (const auto& [peer, node] : request->second.nodes) {
    if (!node.answer && node.why_not.empty()) return;
  }
  Answer(number);
}

void StackRequests::Answer(int64_t number) {
  const Request request = std::move(requests_.extract(number).mapped());
  std::vector<StackNode> nodes;
  for (const auto& [peer, node] : request.nodes) {
    nodes.push_back(node);
    if (!node.answer && node.why_not.empty())
      nodes.back().why_not = absl::StrCat("no answer within ", InSeconds(request.limit));
  }
  std::stable_sort(nodes.begin(), nodes.end(),
                   [](const StackNode& a, const StackNode& b) { return a.first_rank < b.first_rank; });
  request.reply(StacksText(nodes));
}

}  // namespace ddprun
