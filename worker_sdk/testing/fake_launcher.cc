#include "worker_sdk/testing/fake_launcher.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "base/check.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

constexpr char kVariable[] = "DDPRUN_TEST_LAUNCHED";

}  // namespace

FakeLauncher::FakeLauncher(std::vector<int> ranks_of_node, std::vector<std::string> args,
                           std::vector<std::string> program)
    : args_(std::move(args)),
      program_(program.empty() ? std::vector<std::string>{"/proc/self/exe"} : std::move(program)),
      store_(std::make_unique<FakeC10dServer>()) {
  int world_size = 0;
  for (const int n : ranks_of_node) world_size += n;
  for (size_t node = 0; node < ranks_of_node.size(); ++node) {
    for (int local = 0; local < ranks_of_node[node]; ++local) {
      WorkerEnv env;
      env.rank = Rank(static_cast<int64_t>(workers_.size()));
      env.local_rank = LocalRank(local);
      env.group_rank = GroupRank(static_cast<int64_t>(node));
      env.world_size = world_size;
      env.local_world_size = ranks_of_node[node];
      env.group_world_size = static_cast<int>(ranks_of_node.size());
      env.master_addr = env.node_addr = "127.0.0.1";
      env.run_id = "fake_launcher";
      Worker& worker = workers_.emplace_back();
      worker.env = env;
    }
  }
}

FakeLauncher::~FakeLauncher() {
  for (const Worker& worker : workers_) {
    if (worker.pid == 0) continue;
    kill(worker.pid, SIGKILL);
    waitpid(worker.pid, nullptr, 0);
  }
}

std::optional<std::vector<std::string>> FakeLauncher::Args() {
  const char* text = std::getenv(kVariable);
  if (text == nullptr) return std::nullopt;
  return StrSplit(text, ' ');
}

void FakeLauncher::Start(Worker& worker) {
  worker.agent = std::make_unique<FakeAgent>();
  worker.agent->Listen();
  worker.env.agent_socket = worker.agent->name();
  worker.env.round = Round(round_);
  worker.env.master_port = store_->port();
  std::vector<std::string> variables = {StrCat(kVariable, "=", StrJoin(args_, " "))};
  for (const auto& [name, value] : EncodeWorkerEnv(worker.env)) variables.push_back(StrCat(name, "=", value));
  std::vector<char*> env;
  for (std::string& variable : variables) env.push_back(variable.data());
  for (char** e = environ; *e != nullptr; ++e) env.push_back(*e);
  env.push_back(nullptr);
  std::vector<std::string> words = program_;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  DDPRUN_CHECK(posix_spawn(&worker.pid, argv[0], nullptr, nullptr, argv.data(), env.data()) == 0,
               "starting rank " << worker.env.rank << ": " << argv[0]);
  worker.pidfd.Reset(static_cast<int>(syscall(SYS_pidfd_open, worker.pid, 0)));
  DDPRUN_CHECK(worker.pidfd, "pidfd_open");
  worker.registered = worker.parked = false;
  worker.report.reset();
  ++worker.num_starts;
}

std::string FakeLauncher::Run(Duration limit, const std::function<void()>& meanwhile) {
  const TimePoint deadline = std::chrono::steady_clock::now() + limit;
  for (Worker& worker : workers_) Start(worker);
  while (true) {
    std::vector<pollfd> fds;
    for (const Worker& worker : workers_) {
      if (worker.pid == 0) continue;
      fds.push_back({worker.pidfd.get(), POLLIN, 0});
      if (!worker.agent->closed()) fds.push_back({worker.agent->fd(), POLLIN, 0});
    }
    if (fds.empty() && !over_) return "";
    const Duration left = deadline - std::chrono::steady_clock::now();
    if (left <= Duration::zero())
      return StrCat("round ", round_, ": the limit of ", ToMillis(limit), " ms has passed");
    poll(fds.data(), fds.size(),
         static_cast<int>(ToMillis(meanwhile ? std::min<Duration>(left, milliseconds(10)) : left)));
    for (Worker& worker : workers_) {
      if (worker.pid == 0) continue;
      OnMessages(worker);
      if (std::string problem = OnExit(worker); !problem.empty()) return problem;
    }
    if (over_ && AllAreDeadOrParked()) BeginRound();
    if (meanwhile) meanwhile();
  }
}

AgentRequest FakeLauncher::Request() const {
  return {.round = Round(round_), .may_survive = true, .round_over = over_};
}

void FakeLauncher::AskForSnapshot() {
  AgentRequest request = Request();
  request.take_snapshot = true;
  for (const Worker& worker : workers_) {
    if (worker.pid != 0 && worker.registered) worker.agent->Ask(request);
  }
}

void FakeLauncher::OnMessages(Worker& worker) {
  while (std::optional<WorkerReport> report = worker.agent->Next()) {
    if (report->round == Round(round_)) worker.report = *std::move(report);
  }
  while (const std::optional<WorkerSurvival> message = worker.agent->NextSurvival()) {
    DDPRUN_CHECK(message->rank == worker.env.rank && message->round == Round(round_),
                 "rank " << worker.env.rank << " in round " << round_ << " sent round " << message->round);
    if (message->state == SurvivalState::kAsks) {
      worker.registered = true;
      worker.agent->Ask(Request());
      continue;
    }
    DDPRUN_CHECK(worker.registered && !worker.parked, "rank " << worker.env.rank << " parks");
    worker.parked = true;
    ++num_parked_;
    EndRound();
  }
}

std::string FakeLauncher::OnExit(Worker& worker) {
  int status = 0;
  const pid_t ended = waitpid(worker.pid, &status, WNOHANG);
  if (ended == 0) return "";
  worker.pid = 0;
  worker.parked = false;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
    return StrCat("rank ", worker.env.rank.value(), " of round ", round_, " ended with wait status ", status);
  }
  ++num_killed_;
  EndRound();
  return "";
}

void FakeLauncher::EndRound() {
  if (std::exchange(over_, true)) return;
  for (const Worker& worker : workers_) {
    if (worker.pid != 0 && worker.registered && !worker.agent->closed()) worker.agent->Ask(Request());
  }
}

bool FakeLauncher::AllAreDeadOrParked() const {
  return std::ranges::all_of(workers_, [](const Worker& w) { return w.pid == 0 || w.parked; });
}

void FakeLauncher::BeginRound() {
  ++round_;
  over_ = false;
  store_ = std::make_unique<FakeC10dServer>();
  for (Worker& worker : workers_) {
    if (!std::exchange(worker.parked, false)) {
      Start(worker);
      continue;
    }
    worker.report.reset();
    const WorkerEnv& env = worker.env;
    worker.agent->Offer({.round = Round(round_),
                         .rank = env.rank,
                         .group_rank = env.group_rank,
                         .world_size = env.world_size,
                         .group_world_size = env.group_world_size,
                         .restart_count = round_ - kFirstRound,
                         .master_addr = env.master_addr,
                         .master_port = store_->port(),
                         .node_addr = env.node_addr});
  }
}

}  // namespace ddprun
