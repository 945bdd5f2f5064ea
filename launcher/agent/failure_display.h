// Shows people why a round failed: what this node knows in torchrun's look, then the job's page.
#pragma once

#include <string>
#include <vector>

#include "base/ids.h"
#include "launcher/agent/agent_log.h"
#include "launcher/report/failure_record.h"
#include "launcher/report/job_page.h"

namespace ddprun {

//   Order: BeginRound; then ShowNode if workers of this node have failed; then ShowJob if the coordinator
//   says
//          more. SettleDebts before the next round, and when there will be none.
class FailureDisplay {
 public:
  // `log` outlives this. `program`: its name in torchrun's report.
  FailureDisplay(const AgentLog* log, std::string program) : log_(log), program_(std::move(program)) {}

  // `directory`: of this start of the workers, where the page is left too; empty: it is not.
  void BeginRound(Round round, bool has_other_nodes, std::string directory);
  //   REQUIRES: `failures` is not empty.
  void ShowNode(const std::vector<FailureRecord>& failures);
  // The page, without what ShowNode has just said where nothing else is in it.
  void ShowJob(const JobPage& page);
  // The last lines of stderr, which the page would have had, if it never came.
  void SettleDebts();

 private:
  void Leave(const std::string& page);

  const AgentLog* const log_;
  const std::string program_;
  Round round_{-1};
  bool has_other_nodes_ = false;
  std::string directory_;
  std::string shown_;  // by ShowNode in this round
  std::string debt_;
};

}  // namespace ddprun
