// The real programs, and helpers to start and control them.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/fault/testing/process.h"

namespace ddprun {

using Args = std::vector<std::string>;
Args operator+(Args args, const Args& more);

// Paths of the programs among the test's files.
std::string DdprunPath();
std::string WorkerPath();  // see worker.cc
std::string TrainPath();
std::string StoreServerPath();   // a plain c10d store
std::string HostToolPath();      // host_tool.cc
std::string SlowRelayPath();     // slow_relay.cc
std::string StartLackingPath();  // launcher/process/testing/start_lacking.cc
// Path of any other file of the test, by its path in this repository.
std::string TestFile(const std::string& path);

// Creates a new directory under TEST_TMPDIR.
std::string MakeTestDirectory();

// Starts `ddprun options... program...`.
std::unique_ptr<Process> StartAgent(const Args& options, const Args& program, Stdio stdio = Stdio::kPipes);

// `train` with a tiny model. The default is more steps than any test waits for.
Args Training(int64_t steps = 100'000'000);

// A number in a line of "name=value" fields; -1: none.
int Field(const std::string& line, const std::string& name);
// The port of "HOST:PORT".
int PortOf(const std::string& endpoint);
std::string TextField(const std::string& line, const std::string& name);

// The rendezvous options in the line that an agent prints for other nodes to join.
Args PlaceToMeet(const std::string& join_line);

// A fifo that workers with --gate wait for.
class Gate {
 public:
  Gate();
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  std::string flag() const { return "--gate=" + path_; }
  // Releases all workers, including those that start later.
  void Open();

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace ddprun
