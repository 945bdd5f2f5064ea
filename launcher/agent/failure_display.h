// Shows users why a round failed: this node's failures in torchrun's format, then the job's report page.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "base/failure.h"
#include "base/ids.h"
#include "launcher/agent/agent_log.h"
#include "launcher/report/failure_record.h"

namespace ddprun {

// Keeps failure reports and shows them later, in the same order, so that showing them does not delay the next
// round.
class FailureDisplay {
 public:
  // Writes a file, then calls `done` once.
  using WriteFile = std::function<void(const std::string& path, const std::string& text,
                                       std::function<void(const absl::Status&)> done)>;

  // `log` must outlive this object. `program`: the program's name in torchrun's report.
  FailureDisplay(const AgentLog* log, std::string program, WriteFile write_file)
      : log_(log), program_(std::move(program)), write_file_(std::move(write_file)) {}

  // Reports that are kept after this call belong to `round`. `directory`: the log directory of the workers in
  // this round; the page is also written to a file in this directory, unless `directory` is empty.
  void BeginRound(Round round, bool has_other_nodes, std::string directory);
  // Keeps the failures of this node. REQUIRES: `failures` is not empty.
  void KeepNode(std::vector<FailureRecord> failures);
  // Keeps the coordinator's report, which is shown as a page. If the report has no failures other than those
  // passed to KeepNode, only the parts of the page that users have not seen before are shown.
  void KeepJob(JobReport report);

  bool empty() const { return kept_.empty(); }
  // Shows and drops the kept reports. `full_host`: full name of this host, for torchrun's report.
  void Show(const std::string& full_host);
  // Calls Show, then shows the last lines of the workers' stderr if no page has shown them. Call if no page
  // follows.
  void ShowAll(const std::string& full_host);

 private:
  struct Start {
    Round round{-1};
    bool has_other_nodes = false;
    std::string directory = {};
  };
  struct Node {
    Round round;
    std::vector<FailureRecord> failures;
  };
  struct Job {
    Start start;
    JobReport report;
  };

  void Show(Node& node, const std::string& full_host);
  void Show(const Job& job);
  void Leave(const std::string& page, const std::string& directory) const;

  const AgentLog* const log_;
  const std::string program_;
  const WriteFile write_file_;
  Start start_;
  std::vector<std::variant<Node, Job>> kept_;

  // State of the last Node that was shown:
  Round shown_round_{-1};
  std::string shown_;
  std::string stderr_;  // last lines of the node's workers' stderr; cleared when a page is shown
};

}  // namespace ddprun
