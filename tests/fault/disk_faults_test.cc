// Tests disks that are full while logs or snapshots are written, and temporary directories that are
// read-only.
#include <signal.h>

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/host_job.h"

namespace ddprun {
namespace {

using testing::HasSubstr;
using testing::Not;

class DiskFaultsTest : public TrainingTest {
 protected:
  // Mounts a tmpfs of `size` over `directory` on one host.
  void MountSmall(int host, const std::string& directory, const std::string& size) {
    hosts().Run(host, {"/bin/mount", "-t", "tmpfs", "-o", "size=" + size, "small", directory});
  }
  void Resize(int host, const std::string& directory, const std::string& size) {
    hosts().Run(host, {"/bin/mount", "-o", "remount,size=" + size, directory});
  }
};

// The job logs the error, continues without snapshots, and takes snapshots again when the disk has space.
TEST_F(DiskFaultsTest, FullWhileASnapshotIsWritten) {
  std::string directory;
  StartTraining({.max = 1, .prepare = [&](const std::string& snapshots) {
                   directory = snapshots;
                   MountSmall(0, directory, "64k");
                 }});
  FaultNow();
  EXPECT_THAT(job().AwaitLogged(0, "No space left on device"), HasSubstr("snapshot"));
  job().AwaitPrinted(0, "step=100/");
  Resize(0, directory, "100m");
  // By step 200 a later snapshot is complete.
  job().AwaitPrinted(0, "step=200/");
  kill(worker(0), SIGKILL);
  ExpectFailure("SIGKILL", 1);
  ExpectResult({0});
}

// Output that does not fit is dropped with a message, and the job is not affected.
TEST_F(DiskFaultsTest, FullWhileLogsAreWritten) {
  const std::string logs = MakeTestDirectory();
  StartTraining({.options = {"--log-dir=" + logs, "--tee=3"}, .prepare = [&](const std::string&) {
                   for (const int host : {0, 1}) MountSmall(host, logs, "16k");
                 }});
  FaultNow();
  EXPECT_THAT(job().AwaitLogged(0, "cannot write to"), HasSubstr("what does not fit is dropped"));
  ExpectResult({0, 1});
  ExpectUndisturbed();
}

// A container with a read-only root file system may have no writable temporary directory. torchrun exits with
// an error in such a container, because Python's tempfile module raises one.
TEST_F(DiskFaultsTest, NoTemporaryDirectoryIsWritable) {
  HostJob job(1, {"--nnodes=1"}, {WorkerPath(), "--exit=0"});
  for (const char* directory : {"/tmp", "/var/tmp"}) {
    job.hosts().Run(0, {"/bin/mount", "-t", "tmpfs", "-o", "ro", "empty", directory});
  }
  FaultNow();
  job.StartWith({"/bin/sh", "-c", "cd /proc && exec \"$@\"", "sh"});
  job.Start(0, {}, {{"TMPDIR", "/proc"}});
  EXPECT_THAT(job.AwaitLogged(0, "running without log files"),
              HasSubstr("/proc, /tmp, /var/tmp, /usr/tmp, /proc"));
  job.ExpectEnd(0, ProcessEnd{.code = 0});
  EXPECT_THAT(job.agent(0).err(), Not(HasSubstr("--log-dir: ")));
}

}  // namespace
}  // namespace ddprun
