#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "launcher/config/option_groups.h"
#include "launcher/hosts/host_list.h"
#include "launcher/scheduler/find_scheduled_job.h"
#include "launcher/scheduler/scheduled_job.h"
#include "net/endpoint.h"

namespace ddprun {
namespace {

// Whether the user says where and how the nodes meet. Then the scheduler's values have no effect, so that scripts for
// torchrun mean the same here.
bool DescribesMeeting(const Options& options) {
  for (const char* const name : {"standalone", "master-addr", "master-port", "node-rank"}) {
    if (options.IsGiven(name)) return true;
  }
  if (IsEtcd(options.Get("rdzv-backend"))) return false;  // the endpoint says nothing about the nodes
  return options.IsGiven("rdzv-backend") || options.IsGiven("rdzv-endpoint");
}

bool IsOneNode(const Options& options) {
  const std::string& nnodes = options.Get("nnodes");
  return nnodes == "1" || nnodes == "1:1";
}

}  // namespace

absl::Status UseScheduler(const ProcessInputs& inputs, Options& options, LaunchConfig& config) {
  std::optional<ScheduledJob> job = inputs.from_starter;
  if (!job) {
    if (DescribesMeeting(options) || (options.IsGiven("nnodes") && IsOneNode(options)))
      return absl::OkStatus();
    ASSIGN_OR_RETURN(job, FindScheduledJob(inputs.get_env, inputs.read_file,
                                           {.name = inputs.host_name, .num_cpus = inputs.num_cpus}));
  }
  if (!job) return absl::OkStatus();
  RETURN_IF_ERROR(job->one_per_node);
  config.scheduler = job->scheduler;
  config.warnings.insert(config.warnings.end(), job->warnings.begin(), job->warnings.end());
  const auto offer = [&](absl::string_view name, const std::string& value, const std::string& variable) {
    if (options.IsGiven(name)) return;
    options.Offer(name, value, variable);
    config.from_scheduler.push_back(absl::StrCat("--", name, "=", value, " (", variable, ")"));
  };
  for (const OfferedValue& size : job->size) offer(size.option, size.value, size.variable);
  for (const std::string& host : job->hosts) config.expected_hosts.push_back(ShortHostName(host));
  if (!job->hosts.empty()) config.host_name = config.expected_hosts[static_cast<size_t>(job->node)];
  if (IsOneNode(options)) return absl::OkStatus();
  // Agents that the scheduler has not started find the job only by an id and an endpoint that the user has given.
  const bool is_etcd = IsEtcd(options.Get("rdzv-backend"));
  if (!options.IsGiven("rdzv-id") && (is_etcd || !options.IsGiven("rdzv-endpoint")))
    config.admission = Admission::kExpected;
  offer("rdzv-backend", "c10d", job->hosts_variable);
  if (!is_etcd && !options.IsGiven("rdzv-endpoint")) {  // only --hosts allows the option
    RETURN_IF_ERROR(job->address_known);
    config.candidate_ports = CandidatePorts(job->id);
    config.hosting = job->node == 0 ? Hosting::kHere : Hosting::kElsewhere;
    config.candidate_hosts.assign(job->first_host.begin() + 1, job->first_host.end());
    offer("rdzv-endpoint", ToString(Endpoint{job->first_host[0], config.candidate_ports[0]}),
          job->hosts_variable);
  }
  offer("rdzv-id", job->id, job->id_variable);
  offer("node-rank", absl::StrCat(job->node), job->node_variable);
  return absl::OkStatus();
}

}  // namespace ddprun
