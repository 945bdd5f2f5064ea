#include "tests/fault/testing/job.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "gtest/gtest.h"

namespace ddprun {
Args operator+(Args args, const Args& more) {
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

std::string TestFile(const std::string& path) {
  return std::string(getenv("TEST_SRCDIR")) + "/" + getenv("TEST_WORKSPACE") + "/" + path;
}
std::string DdprunPath() { return TestFile("launcher/ddprun"); }
std::string WorkerPath() { return TestFile("tests/fault/testing/worker"); }
std::string TrainPath() { return TestFile("examples/train/train"); }
std::string StartLackingPath() { return TestFile("launcher/process/start_lacking"); }
std::string HostToolPath() { return TestFile("tests/fault/testing/host_tool"); }
std::string SlowRelayPath() { return TestFile("tests/fault/testing/slow_relay"); }
std::string StoreServerPath() { return TestFile("tests/interop/store_server"); }
std::string MakeTestDirectory() {
  std::string name = testing::TempDir() + "/faultXXXXXX";
  if (mkdtemp(name.data()) == nullptr) std::abort();
  return name;
}

std::unique_ptr<Process> StartAgent(const Args& options, const Args& program, Stdio stdio) {
  return std::make_unique<Process>(Args{DdprunPath()} + options + program, stdio);
}

Args Training(int64_t steps) {
  return {TrainPath(),    "--layers=1",       "--heads=2",     "--width=16",
          "--context=16", "--global-batch=8", "--log-every=1", "--steps=" + std::to_string(steps)};
}

Args RendezvousOptions(const std::string& join_line) {
  Args options;
  for (const char* name :
       {"--nnodes=", "--max-restarts=", "--rdzv-backend=", "--rdzv-endpoint=", "--rdzv-id="}) {
    const size_t at = join_line.find(name);
    if (at == std::string::npos) continue;
    options.push_back(join_line.substr(at, join_line.find(' ', at) - at));
  }
  return options;
}

std::string TextField(const std::string& line, const std::string& name) {
  const std::string text = " " + line;
  const size_t at = text.find(" " + name + "=");
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size() + 2;
  return text.substr(begin, text.find_first_of(" \r", begin) - begin);
}

int Field(const std::string& line, const std::string& name) {
  const std::string text = TextField(line, name);
  return text.empty() ? -1 : std::stoi(text);
}

int PortOf(const std::string& endpoint) { return std::stoi(endpoint.substr(endpoint.rfind(':') + 1)); }

Gate::Gate() : path_(MakeTestDirectory() + "/gate") {
  // O_RDWR: opening a fifo for writing only would block until it has a reader.
  if (mkfifo(path_.c_str(), 0600) != 0 || (fd_ = open(path_.c_str(), O_RDWR | O_CLOEXEC)) < 0) {
    std::perror(path_.c_str());
    std::abort();
  }
}

Gate::~Gate() { Open(); }

void Gate::Open() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

}  // namespace ddprun
