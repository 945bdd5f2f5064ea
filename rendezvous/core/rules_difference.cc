#include "rendezvous/core/rules_difference.h"

#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/scale_up.h"
#include "base/time.h"

namespace ddprun {
namespace {

std::vector<std::string> Options(const RoundPolicy& p) {
  return {absl::StrCat("--nnodes=", p.min_nodes, ":", p.max_nodes), absl::StrCat("--node-unit=", p.node_unit),
          absl::StrCat("--max-restarts=", p.max_restarts),
          absl::StrCat("--max-restarts-without-progress=", p.max_restarts_without_progress),
          absl::StrCat("--min-uptime of ", ToMillis(p.min_uptime), " ms"),
          absl::StrCat("--scale-up=", ToString(p.scale_up)),
          // A node relies on it when it stops its workers because nobody hears it.
          absl::StrCat("--rdzv-conf=lease_ms=", ToMillis(p.lease))};
}

}  // namespace

std::string RulesDifference(const RoundPolicy& job, const RoundPolicy& node) {
  const std::vector<std::string> of_job = Options(job);
  const std::vector<std::string> of_node = Options(node);
  for (size_t i = 0; i < of_job.size(); ++i) {
    if (of_job[i] != of_node[i]) return absl::StrCat(of_node[i], ", but the job has ", of_job[i]);
  }
  return "";
}

}  // namespace ddprun
