#include "launcher/stacks/missing.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ddprun {
namespace {

constexpr size_t kMaxNamed = 3;

std::string Processes(const std::vector<pid_t>& pids) {
  if (pids.size() == 1) return absl::StrCat("process ", pids[0]);
  const size_t named = std::min(pids.size(), kMaxNamed);
  if (named < pids.size()) {
    return absl::StrCat("processes ", absl::StrJoin(pids.begin(), pids.begin() + named, ", "), " and ",
                        pids.size() - named, " more");
  }
  return absl::StrCat("processes ", absl::StrJoin(pids.begin(), pids.end() - 1, ", "), " and ", pids.back());
}

}  // namespace

void Missing::Add(const std::string& what, const std::string& why, pid_t pid) {
  auto reason = std::find_if(reasons_.begin(), reasons_.end(),
                             [&](const Reason& r) { return r.what == what && r.why == why; });
  if (reason == reasons_.end()) reason = reasons_.insert(reason, {.what = what, .why = why, .pids = {}});
  reason->pids.push_back(pid);
}

std::vector<std::string> Missing::Sentences() const {
  std::vector<std::string> sentences;
  for (const Reason& r : reasons_) {
    std::vector<pid_t> pids = r.pids;
    std::sort(pids.begin(), pids.end());
    sentences.push_back(absl::StrCat(r.what, " of ", Processes(pids), ": ", r.why));
  }
  std::sort(sentences.begin(), sentences.end());
  return sentences;
}

}  // namespace ddprun
