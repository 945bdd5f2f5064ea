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

// Paths of programs that are data files of the test.
std::string DdprunPath();
std::string WorkerPath();  // see worker.cc
std::string TrainPath();
std::string StoreServerPath();   // tests/interop/store_server.cc, a store without a coordinator
std::string HostToolPath();      // host_tool.cc
std::string SlowRelayPath();     // slow_relay.cc
std::string StartLackingPath();  // launcher/process/testing/start_lacking.cc
// Returns the path of any other data file of the test. `path` is its path in this repository.
std::string TestFile(const std::string& path);

// Creates a new directory under TEST_TMPDIR.
std::string MakeTestDirectory();

// Starts `ddprun options... program...`.
std::unique_ptr<Process> StartAgent(const Args& options, const Args& program, Stdio stdio = Stdio::kPipes);

// Returns the command line of `train` with a tiny model. The default is more steps than any test waits for.
Args Training(int64_t steps = 100'000'000);

// These return the value of `name` in a line of "name=value" fields. If the line has no such field, TextField
// returns an empty text, and Field returns -1.
std::string TextField(const std::string& line, const std::string& name);
int Field(const std::string& line, const std::string& name);
// Returns the port of "HOST:PORT".
int PortOf(const std::string& endpoint);

// Returns the rendezvous options in `join_line`, the command that an agent prints for other nodes to join.
Args RendezvousOptions(const std::string& join_line);

// A fifo that keeps workers started with flag() from exiting.
class Gate {
 public:
  Gate();
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  std::string flag() const { return "--gate=" + path_; }
  // Releases all workers, including workers that start later.
  void Open();

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace ddprun
