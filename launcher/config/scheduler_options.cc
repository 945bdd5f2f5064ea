#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "launcher/config/option_groups.h"
#include "launcher/scheduler/scheduled_job.h"

namespace ddprun {
namespace {

// Whether the user says where and how the nodes meet. Then the scheduler's values have no effect, so that scripts for
// torchrun mean the same here.
bool DescribesMeeting(const Options& options) {
  for (const char* const name :
       {"standalone", "rdzv-backend", "rdzv-endpoint", "master-addr", "master-port", "node-rank"}) {
    if (options.IsGiven(name)) return true;
  }
  return false;
}

bool IsOneNode(const Options& options) {
  const std::string& nnodes = options.Get("nnodes");
  return nnodes == "1" || nnodes == "1:1";
}

}  // namespace

absl::Status UseScheduler(const ProcessInputs& inputs, Options& options, LaunchConfig& config) {
  if (DescribesMeeting(options) || (options.IsGiven("nnodes") && IsOneNode(options))) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::optional<ScheduledJob> job, FindSlurmStep(inputs.get_env));
  if (!job) return absl::OkStatus();
  RETURN_IF_ERROR(job->one_per_node);
  const auto offer = [&](absl::string_view name, const std::string& value, const std::string& variable) {
    if (options.IsGiven(name)) return;
    options.Offer(name, value, variable);
    config.from_scheduler.push_back(absl::StrCat("--", name, "=", value, " (", variable, ")"));
  };
  for (const OfferedValue& size : job->size) offer(size.option, size.value, size.variable);
  const std::string& name = job->hosts[job->node];
  config.host_name = name.substr(0, name.find('.'));  // as in expected_hosts
  if (IsOneNode(options)) return absl::OkStatus();
  config.candidate_ports = CandidatePorts(job->id);
  config.hosting = job->node == 0 ? Hosting::kHere : Hosting::kElsewhere;
  offer("rdzv-backend", "c10d", job->hosts_variable);
  offer("rdzv-endpoint", absl::StrCat(job->hosts[0], ":", config.candidate_ports[0]), job->hosts_variable);
  offer("rdzv-id", job->id, job->id_variable);
  offer("node-rank", absl::StrCat(job->node), job->node_variable);
  return absl::OkStatus();
}

}  // namespace ddprun
