// Measures how a coordinator scales, with many simulated agents in one process. Each agent has its own gRPC
// connection and no workers.
//   agent_crowd HOST:PORT AGENTS RUN_ID ROUNDS [OTHERS QUORUM]
// All agents join a job of AGENTS + OTHERS nodes; QUORUM is the number of the value of --quorum (that of the default). Then, ROUNDS times, one
// agent reports a failed worker, and all agents answer the coordinator's messages. Prints one line: the milliseconds from the first Join to the
// last Start, the milliseconds from each failure to the last Start of the next round, and the CPU seconds of this process.

#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/time.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/steady_timer.hpp"
#include "proto/rendezvous.pb.h"
#include "rendezvous/client/grpc_link.h"
#include "rendezvous/testing/join.h"

namespace ddprun {
namespace {

constexpr Duration kDeadline = seconds(120);

TimePoint Now() { return std::chrono::steady_clock::now(); }

[[noreturn]] void Fail(const std::string& why) {
  std::fprintf(stderr, "agent_crowd: %s\n", why.c_str());
  std::_Exit(1);  // Skips destructors, because destroying a thousand links takes a long time.
}

class Crowd {
 public:
  struct Job {
    std::string run_id;
    int rounds = 0;
    int others = 0;
    std::optional<int> quorum;
  };
  Crowd(int agents, Job job)
      : job_(std::move(job)), rounds_(job_.rounds), links_(agents), deadline_(io_, kDeadline) {}

  void Run(const std::string& host, int port) {
    deadline_.async_wait([this](const boost::system::error_code&) {
      Fail(absl::StrCat("only ", started_, " of ", links_.size(), " agents were started in round ",
                        took_.size(), " within ", kDeadline / seconds(1), " s"));
    });
    begin_ = Now();
    for (size_t i = 0; i < links_.size(); ++i) {
      links_[i] = MakeGrpcLink(io_, host, port, kDeadline);
      CoordinatorLink::Handlers handlers;
      handlers.on_message = [this, i](const proto::CoordinatorMessage& m) { OnMessage(i, m); };
      handlers.on_lost = [i](const absl::Status& why) {
        Fail(absl::StrCat("agent ", i, " lost the coordinator: ", std::string(why.message())));
      };
      links_[i]->Start(std::move(handlers));
      const int nodes = static_cast<int>(links_.size()) + job_.others;
      proto::AgentMessage join = JoinOf(absl::StrCat("agent", i), nodes, job_.run_id);
      if (job_.quorum) (*join.mutable_join()->mutable_rules())["quorum"] = *job_.quorum;
      (*join.mutable_join()->mutable_rules())["max_restarts"] = rounds_;
      (*join.mutable_join()->mutable_rules())["lease_ms"] = 5000;
      links_[i]->Send(join);
    }
    io_.run();
  }

 private:
  void OnMessage(size_t i, const proto::CoordinatorMessage& message) {
    proto::AgentMessage answer;
    switch (message.kind_case()) {
      case proto::CoordinatorMessage::kStart:
        round_ = message.start().round();
        if (++started_ == links_.size()) RoundIsComplete();
        return;
      case proto::CoordinatorMessage::kStop:
        answer.mutable_ready()->set_round(message.stop().round());
        answer.mutable_ready()->set_store_port(1);
        return links_[i]->Send(answer);
      case proto::CoordinatorMessage::kDismiss:
        Fail(absl::StrCat("agent ", i, " was dismissed: ", message.dismiss().message()));
      default:
        return;
    }
  }

  void RoundIsComplete() {
    took_.push_back(Now() - begin_);
    if (static_cast<int>(took_.size()) > rounds_) return Print();
    started_ = 0;
    begin_ = Now();
    proto::AgentMessage message;
    proto::WorkersFailed& failed = *message.mutable_workers_failed();
    failed.set_round(round_);
    failed.mutable_failure()->set_host("host0");
    failed.mutable_failure()->set_exit_code(1);
    failed.mutable_failure()->set_cause("rank 0 on host0 failed: exit code 1");
    links_[0]->Send(message);
  }

  [[noreturn]] void Print() const {
    for (const Duration d : took_) std::printf("%.1f ", std::chrono::duration<double, std::milli>(d).count());
    rusage use{};
    getrusage(RUSAGE_SELF, &use);
    std::printf("%.2f\n", static_cast<double>(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
                              static_cast<double>(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6);
    std::fflush(stdout);
    std::_Exit(0);
  }

  const Job job_;
  const int rounds_;
  boost::asio::io_context io_{1};
  std::vector<std::unique_ptr<CoordinatorLink>> links_;
  boost::asio::steady_timer deadline_;
  TimePoint begin_;
  size_t started_ = 0;  // agents that have received the Start of the current round
  int64_t round_ = 0;
  std::vector<Duration> took_;  // the duration of the join, followed by that of each restart
};

int Main(int argc, char** argv) {
  int port = 0;
  int agents = 0;
  int rounds = 0;
  Crowd::Job job;
  int quorum = 0;
  if (argc == 7 && absl::SimpleAtoi(argv[5], &job.others) && absl::SimpleAtoi(argv[6], &quorum)) {
    job.quorum = quorum;
  }
  const std::string endpoint = argc == 5 || job.quorum ? argv[1] : "";
  const size_t colon = endpoint.rfind(':');
  if (colon == std::string::npos || !absl::SimpleAtoi(endpoint.substr(colon + 1), &port) ||
      !absl::SimpleAtoi(argv[2], &agents) || agents < 1 || !absl::SimpleAtoi(argv[4], &rounds)) {
    std::fprintf(stderr, "usage: agent_crowd HOST:PORT AGENTS RUN_ID ROUNDS [OTHERS QUORUM]\n");
    return 2;
  }
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  job.run_id = argv[3];
  job.rounds = rounds;
  Crowd(agents, std::move(job)).Run(endpoint.substr(0, colon), port);
  return 0;
}

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) { return ddprun::Main(argc, argv); }
