// Starts the workers of one round of `train`, like a launcher.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "examples/train/metrics.h"
#include "tests/train/child.h"

namespace ddprun {

// Creates a new directory under TEST_TMPDIR.
std::string MakeTestDirectory();

// Returns the path of a program of this repository in the test's runfiles.
std::string ProgramPath(const std::string& label_path);

// Returns the flags for a tiny model, and for a batch that 1, 2, 4 and 8 workers can share evenly. An endless
// run whose output is not read needs a large `log_every`; otherwise it blocks on a full pipe.
std::vector<std::string> TinyModel(int64_t log_every = 1);

struct JobOptions {
  int world_size = 1;
  int nodes = 1;  // must divide world_size; workers of different nodes use TCP, although on one machine
  int round = 0;
  int restart_count = 0;
  std::string agent_socket{};  // the agent's socket for all workers; empty: no agent
  Environment more{};          // additional variables for all workers
};

// If there is more than one worker, also starts a store in a separate process.
//   Threads: one caller at a time.
class Job {
 public:
  // Rank r gets `flags` followed by extra_flags[r], if any.
  Job(const JobOptions& options, std::vector<std::string> flags,
      const std::vector<std::vector<std::string>>& extra_flags = {});
  ~Job();

  Child& worker(int rank) { return *workers_[rank]; }
  // Waits for all workers. The result of a worker that does not exit in time is {-1, 0}.
  std::vector<ChildEnd> Wait();
  // Waits, expects that all workers exit with 0, and returns rank 0's last line.
  std::string Finish();

 private:
  std::unique_ptr<Child> store_;
  std::vector<std::unique_ptr<Child>> workers_;
};

// Runs a job, which must succeed, and returns rank 0's last line: "step=... loss=... sha256=...".
std::string Train(const JobOptions& options, std::vector<std::string> flags);

// Returns the losses in a metrics file, at full precision.
std::vector<double> Losses(const std::string& metrics_path);

}  // namespace ddprun
