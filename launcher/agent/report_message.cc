#include "launcher/agent/report_message.h"

#include <utility>

namespace ddprun {
namespace {

PageFailure FailureOf(const proto::Failure& f) {
  PageFailure failure = {.rank = Rank(f.rank()),
                         .local_rank = LocalRank(f.local_rank()),
                         .host = f.host(),
                         .pid = static_cast<pid_t>(f.pid()),
                         .exit_code = f.exit_code(),
                         .signal = f.signal(),
                         .cause = f.cause(),
                         .uptime = milliseconds(f.uptime_ms()),
                         .exception = f.exception(),
                         .stderr_tail = f.stderr_tail(),
                         .evidence = {f.evidence().begin(), f.evidence().end()},
                         .consequence = f.consequence(),
                         .stuck = f.stuck()};
  if (f.has_step()) failure.step = f.step();
  return failure;
}

}  // namespace

JobPage PageOf(const proto::JobReport& report) {
  JobPage page = {.round = Round(report.round()),
                  .more_failures = report.more_failures(),
                  .lost_nodes = {report.lost_nodes().begin(), report.lost_nodes().end()},
                  .outcome = report.outcome()};
  for (const proto::JobReport::Group& group : report.groups()) {
    page.groups.push_back({.first = FailureOf(group.first()),
                           .count = group.count(),
                           .ranks = {group.ranks().begin(), group.ranks().end()}});
  }
  return page;
}

}  // namespace ddprun
