// Shows people why a round failed: what this node knows in torchrun's look, then the job's page.
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

// What is kept is shown later, in that order: the next round shall not wait for a terminal.
class FailureDisplay {
 public:
  // Writes a file, and calls `done` once.
  using WriteFile = std::function<void(const std::string& path, const std::string& text,
                                       std::function<void(const absl::Status&)> done)>;

  // `log` outlives this. `program`: its name in torchrun's report.
  FailureDisplay(const AgentLog* log, std::string program, WriteFile write_file)
      : log_(log), program_(std::move(program)), write_file_(std::move(write_file)) {}

  // What is kept from here on is of this round. `directory`: of this start of the workers, where the page is
  // left too; empty: it is not.
  void BeginRound(Round round, bool has_other_nodes, std::string directory);
  // The failures of this node. REQUIRES: not empty.
  void KeepNode(std::vector<FailureRecord> failures);
  // The coordinator's report, shown as a page. What KeepNode says of the round is left out where there is nothing else in it.
  void KeepJob(JobReport report);

  bool empty() const { return kept_.empty(); }
  // `full_host`: of this machine, as torchrun's report has it.
  void Show(const std::string& full_host);
  // When no page will come any more: Show, and the last lines of stderr, which the page would have had.
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

  // Of the last Node that was shown:
  Round shown_round_{-1};
  std::string shown_;
  std::string stderr_;  // its last lines, until a page is shown
};

}  // namespace ddprun
