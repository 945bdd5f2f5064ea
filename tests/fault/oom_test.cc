// Tests a worker that exceeds the memory limit of its control group. This test is a separate target because
// it must run without Bazel's sandbox, which does not allow control groups.
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/host_job.h"

namespace ddprun {
namespace {

using testing::HasSubstr;

// A control group with a memory limit of 100 MiB. The destructor removes it.
class SmallGroup {
 public:
  SmallGroup() {
    for (const std::string top : {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"}) {
      path_ = top + "/ddprun-fault-" + std::to_string(getpid());
      if (mkdir(path_.c_str(), 0755) != 0) continue;
      for (const char* limit : {"/memory.max", "/memory.limit_in_bytes"}) {
        if (std::ofstream(path_ + limit, std::ios::in) << (100 << 20) << std::flush) return;
      }
      rmdir(path_.c_str());
    }
    path_.clear();
  }
  ~SmallGroup() { EXPECT_TRUE(path_.empty() || rmdir(path_.c_str()) == 0) << path_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class OomTest : public HostFaultTest {};

TEST_F(OomTest, ReportContainsTheKernelMessage) {
  const SmallGroup group;
  if (group.path().empty()) GTEST_SKIP() << "cannot create a control group with a memory limit here";
  Gate gate;
  HostJob job(1, {"--nnodes=1", "--max-restarts=1"}, {WorkerPath(), gate.flag(), "--eat-in-round=0"});
  // The agent is in the same group, as in a container. The kernel kills the worker, which uses more memory.
  job.StartWith({"/bin/sh", "-c", "echo 0 > " + group.path() + "/cgroup.procs && exec \"$@\"", "sh"});
  FaultNow();
  job.Start(0);
  EXPECT_THAT(job.AwaitLogged(0, "event=round_report"), HasSubstr("SIGKILL"));
  Detected(job.agent(0).found_at());
  job.AwaitWorld(0, 1);
  Recovered(job.agent(0).found_at());
  gate.Open();
  job.ExpectEnd(0, {.code = 0});
  EXPECT_THAT(job.agent(0).err(), HasSubstr("OOM killer"));
  EXPECT_THAT(job.agent(0).err(), HasSubstr("100.0 MiB"));
}

}  // namespace
}  // namespace ddprun
