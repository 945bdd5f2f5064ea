#include "tests/train/gpu_job.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "tests/train/job.h"
#include "worker_sdk/snapshot/file_io.h"

namespace ddprun {

Flags Tiny(const Flags& flags) {
  Flags all = {"--layers=1",       "--heads=2", "--width=16",   "--context=16",
               "--global-batch=8", "--steps=6", "--log-every=1"};
  for (const std::string& flag : flags) {
    const std::string name = flag.substr(0, flag.find('=') + 1);
    if (!name.empty()) std::erase_if(all, [&](const std::string& f) { return f.starts_with(name); });
    all.push_back(flag);
  }
  return all;
}

Environment StandIn(const Environment& settings) {
  std::string path;
  for (const char* library :
       {"examples/train/gpu/testing", "worker_sdk/testing/gpu/nccl", "worker_sdk/testing/gpu/cublas"})
    path += (path.empty() ? "" : ":") + ProgramPath(library);
  Environment environment = {{"LD_LIBRARY_PATH", path}, {"DDPRUN_STAND_IN_TREE_SUMS", "1"}};
  for (const auto& [name, value] : settings) environment.emplace_back("DDPRUN_STAND_IN_" + name, value);
  return environment;
}

Flags TrainAlone(const Flags& flags) {
  Flags argv = {ProgramPath("examples/train/train")};
  argv.insert(argv.end(), flags.begin(), flags.end());
  return argv;
}

std::string LastLineOf(const Flags& argv, const Environment& environment) {
  Child child(argv, environment);
  EXPECT_EQ(child.Wait(seconds(100)).value_or(ChildEnd{}), (ChildEnd{.code = 0}))
      << testing::PrintToString(argv) << "\n"
      << child.err();
  const size_t last = child.out().rfind("\nstep=");
  return last == std::string::npos ? child.out() : child.out().substr(last + 1);
}

std::string OnCpu(Flags flags) {
  flags.push_back("--device=cpu");
  return LastLineOf(TrainAlone(flags), {});
}

Flags TrainWithDdprun(int workers, const Flags& agent, const Flags& flags) {
  Flags argv = {ProgramPath("launcher/ddprun"), "--standalone",
                "--nproc-per-node=" + std::to_string(workers)};
  argv.insert(argv.end(), agent.begin(), agent.end());
  argv.push_back(ProgramPath("examples/train/train"));
  argv.insert(argv.end(), flags.begin(), flags.end());
  return argv;
}

Environment StandInForDdprun(const Environment& settings) {
  Environment environment = StandIn(settings);
  environment.emplace_back("PATH", "/usr/bin:/bin");
  environment.emplace_back("TMPDIR", testing::TempDir());
  return environment;
}

std::string OnGpu(Flags flags) {
  flags.push_back("--device=cuda");
  return LastLineOf(TrainAlone(flags), StandIn());
}

pid_t WorkerOf(const std::string& flag, int rank) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const StatusOr<std::string> argv = ReadFile(entry.path() / "cmdline");
    const StatusOr<std::string> environment = ReadFile(entry.path() / "environ");
    if (!argv.ok() || !environment.ok() || !argv->starts_with(ProgramPath("examples/train/train"))) continue;
    const std::string variable = std::string(1, '\0') + "RANK=" + std::to_string(rank) + '\0';
    if (argv->find(flag) != std::string::npos && environment->find(variable) != std::string::npos)
      return std::stoi(name);
  }
  return 0;
}

}  // namespace ddprun
