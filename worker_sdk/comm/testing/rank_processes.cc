#include "worker_sdk/comm/testing/rank_processes.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/check.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

constexpr char kVariable[] = "DDPRUN_TEST_RANK";
constexpr char kAddressVariable[] = "DDPRUN_TEST_ADDRESS";

std::string NewDir() {
  const char* base = std::getenv("TEST_TMPDIR");
  std::string name = StrCat(base != nullptr ? base : "/tmp", "/ranks.XXXXXX");
  DDPRUN_CHECK(mkdtemp(name.data()) != nullptr, "cannot create the store's directory");
  return name;
}

}  // namespace

std::optional<RankProcess> RankProcess::Self() {
  const char* text = std::getenv(kVariable);
  if (text == nullptr) return std::nullopt;
  const std::vector<std::string> words = StrSplit(text, ' ');
  int n[6] = {};
  DDPRUN_CHECK(words.size() >= 7, "DDPRUN_TEST_RANK is malformed");
  for (int i = 0; i < 6; ++i) {
    const std::optional<int> number = ParseNumber<int>(words[i]);
    DDPRUN_CHECK(number, "not a number: " << words[i]);
    n[i] = *number;
  }
  RankProcess self;
  self.options.rank = Rank(n[0]);
  self.options.world_size = n[1];
  self.options.local_rank = LocalRank(n[2]);
  self.options.local_world_size = n[3];
  self.options.group_rank = GroupRank(n[4]);
  self.options.group_world_size = n[5];
  self.options.round = Round(RankProcesses::kRound);
  self.options.run_id = "test";
  self.options.setup_timeout = seconds(60);
  if (const char* address = std::getenv(kAddressVariable)) self.options.address = address;
  self.store_dir = words[6];
  self.args.assign(words.begin() + 7, words.end());
  return self;
}

std::vector<std::pair<std::string, std::string>> RankProcess::Variables(const std::vector<int>& ranks_of_node,
                                                                        int rank,
                                                                        const std::string& store_dir,
                                                                        const std::vector<std::string>& args,
                                                                        const std::string& address) {
  int node = 0, first = 0, world = 0;
  for (const int n : ranks_of_node) world += n;
  while (first + ranks_of_node[node] <= rank) first += ranks_of_node[node++];
  return {{kVariable, StrCat(rank, " ", world, " ", rank - first, " ", ranks_of_node[node], " ", node, " ",
                             ranks_of_node.size(), " ", store_dir, " ", StrJoin(args, " "))},
          {kAddressVariable, address}};
}

RankProcesses::RankProcesses(std::vector<int> ranks_of_node, std::vector<std::string> args)
    : ranks_of_node_(std::move(ranks_of_node)), args_(std::move(args)), dir_(NewDir()), store_(dir_) {
  for (int n : ranks_of_node_) pids_.resize(pids_.size() + n);
}

RankProcesses::~RankProcesses() {
  for (pid_t pid : pids_) {
    if (pid == 0) continue;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  std::error_code ignored;
  std::filesystem::remove_all(dir_, ignored);
}

void RankProcesses::StartAll() {
  for (int r = 0; r < world_size(); ++r) Start(r);
}

void RankProcesses::Start(int rank) {
  std::vector<std::string> variables;
  for (const auto& [name, value] : RankProcess::Variables(ranks_of_node_, rank, dir_, args_, "127.0.0.1")) {
    variables.push_back(StrCat(name, "=", value));
  }
  char self[] = "/proc/self/exe";
  char* argv[] = {self, nullptr};
  std::vector<char*> env;
  for (std::string& variable : variables) env.push_back(variable.data());
  for (char** e = environ; *e != nullptr; ++e) env.push_back(*e);
  env.push_back(nullptr);
  DDPRUN_CHECK(posix_spawn(&pids_[rank], self, nullptr, nullptr, argv, env.data()) == 0, "rank " << rank);
}

void RankProcesses::Kill(int rank, int signo) {
  DDPRUN_CHECK(pids_[rank] != 0 && kill(pids_[rank], signo) == 0, "the rank is not running");
}

bool RankProcesses::IsStopped(int rank) const {
  siginfo_t info{};
  return waitid(P_PID, pids_[rank], &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 && info.si_code == CLD_STOPPED;
}

std::optional<int> RankProcesses::Wait(int rank, Duration timeout) {
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pids_[rank], 0));
  DDPRUN_CHECK(pidfd >= 0, "the rank was already reaped");
  pollfd p{.fd = pidfd, .events = POLLIN, .revents = 0};
  const int ready = poll(&p, 1, static_cast<int>(ToMillis(timeout)));
  close(pidfd);
  if (ready != 1) return std::nullopt;
  int status = 0;
  DDPRUN_CHECK(waitpid(pids_[rank], &status, 0) == pids_[rank], "cannot reap the rank");
  pids_[rank] = 0;
  return status;
}

}  // namespace ddprun
