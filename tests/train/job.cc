#include "tests/train/job.h"

#include <stdlib.h>

#include <utility>

#include "base/worker_env.h"
#include "gtest/gtest.h"

namespace ddprun {

std::string MakeTestDirectory() {
  std::string name = testing::TempDir() + "/trainXXXXXX";
  if (mkdtemp(name.data()) == nullptr) std::abort();
  return name;
}

std::string ProgramPath(const std::string& label_path) {
  return std::string(getenv("TEST_SRCDIR")) + "/" + getenv("TEST_WORKSPACE") + "/" + label_path;
}

std::vector<std::string> TinyModel(int64_t log_every) {
  return {"--layers=1",   "--heads=2",        "--width=16",
          "--context=16", "--global-batch=8", "--log-every=" + std::to_string(log_every)};
}

Job::Job(const JobOptions& options, std::vector<std::string> flags,
         const std::vector<std::vector<std::string>>& extra_flags) {
  WorkerEnv env;
  env.world_size = env.role_world_size = options.world_size;
  env.group_world_size = options.nodes;
  env.local_world_size = options.world_size / options.nodes;
  env.restart_count = options.restart_count;
  env.max_restarts = 3;
  env.round = Round(options.round);
  env.run_id = "test";
  env.agent_socket = options.agent_socket;
  env.master_addr = "127.0.0.1";
  env.master_port = 1;  // not used: a single worker connects to no store
  if (options.world_size > 1) {
    store_ = std::make_unique<Child>(std::vector<std::string>{ProgramPath("tests/interop/store_server")},
                                     Environment{});
    env.master_port = std::stoi(store_->AwaitLine("").value());
  }
  flags.insert(flags.begin(), ProgramPath("examples/train/train"));
  for (int rank = 0; rank < options.world_size; ++rank) {
    env.rank = Rank(rank);
    env.local_rank = LocalRank(rank % env.local_world_size);
    env.group_rank = GroupRank(rank / env.local_world_size);
    env.role_rank = rank;
    std::vector<std::string> argv = flags;
    if (rank < static_cast<int>(extra_flags.size())) {
      argv.insert(argv.end(), extra_flags[rank].begin(), extra_flags[rank].end());
    }
    // A single worker gets an empty environment, as if a user had started it without a launcher.
    const bool launched = options.world_size > 1 || options.round > 0 || !options.agent_socket.empty();
    Environment environment = launched ? EncodeWorkerEnv(env) : Environment{};
    environment.insert(environment.end(), options.more.begin(), options.more.end());
    workers_.push_back(std::make_unique<Child>(argv, environment));
  }
}

Job::~Job() = default;

std::vector<ChildEnd> Job::Wait() {
  std::vector<ChildEnd> ends;
  for (auto& worker : workers_) ends.push_back(worker->Wait().value_or(ChildEnd{}));
  return ends;
}

std::string Job::Finish() {
  const std::vector<ChildEnd> ends = Wait();
  for (size_t rank = 0; rank < ends.size(); ++rank) {
    EXPECT_EQ(ends[rank], (ChildEnd{.code = 0})) << "rank " << rank << ": " << workers_[rank]->err();
  }
  const std::string& out = workers_[0]->out();
  const size_t last = out.rfind("\nstep=");
  return last == std::string::npos ? "" : out.substr(last + 1);
}

std::string Train(const JobOptions& options, std::vector<std::string> flags) {
  return Job(options, std::move(flags)).Finish();
}

std::vector<double> Losses(const std::string& metrics_path) {
  std::vector<double> losses;
  const std::vector<train::StepMetrics> steps = train::ReadMetrics(metrics_path).value();
  for (const train::StepMetrics& step : steps) losses.push_back(step.loss);
  return losses;
}

}  // namespace ddprun
