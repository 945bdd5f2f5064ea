// The workers of one round of `train`, started as a launcher would start them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "examples/train/metrics.h"
#include "tests/train/child.h"

namespace ddprun {

// A directory of its own under TEST_TMPDIR.
std::string MakeTestDirectory();

// The path of a program of this repository among the test's files.
std::string ProgramPath(const std::string& label_path);

// A model that takes no time, and a batch that 1, 2, 4 and 8 workers share evenly. A training without an end
// whose output nobody reads has few lines, lest it waits until somebody does.
std::vector<std::string> TinyModel(int64_t log_every = 1);

struct JobOptions {
  int world_size = 1;
  int nodes = 1;  // all on this machine, but their workers talk over TCP; divides world_size
  int round = 0;
  int restart_count = 0;
  std::string agent_socket{};  // of all workers; empty: no agent
  Environment more{};          // of all workers
};

// With more than one worker there is a store, in a process of its own.
//   Threads: one caller at a time.
class Job {
 public:
  // `flags` of rank r: those given, then extra_flags[r] where there are any.
  Job(const JobOptions& options, std::vector<std::string> flags,
      const std::vector<std::vector<std::string>>& extra_flags = {});
  ~Job();

  Child& worker(int rank) { return *workers_[rank]; }
  // Waits for all; the ends of those that did not end in time are {-1, 0}.
  std::vector<ChildEnd> Wait();
  // Waits, expects that all ended well and returns rank 0's last line.
  std::string Finish();

 private:
  std::unique_ptr<Child> store_;
  std::vector<std::unique_ptr<Child>> workers_;
};

// Runs a job to its good end and returns rank 0's last line: "step=... loss=... sha256=...".
std::string Train(const JobOptions& options, std::vector<std::string> flags);

// The losses of a metrics file, bit by bit.
std::vector<double> Losses(const std::string& metrics_path);

}  // namespace ddprun
