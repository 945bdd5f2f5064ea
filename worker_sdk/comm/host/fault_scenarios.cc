// The scenario in which a rank kills or stops itself within an operation.
#include "worker_sdk/comm/host/fault_scenarios.h"

#include <signal.h>
#include <time.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/time.h"
#include "ddprun/communicator.h"
#include "ddprun/status.h"
#include "ddprun/tensor.h"
#include "worker_sdk/comm/host/fault_board.h"
#include "worker_sdk/comm/host/rank_scenarios.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

int64_t Now() { return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count(); }

// Runs one kind of operation again and again.
class Operations {
 public:
  Operations(Communicator& comm, std::string kind, int64_t n)
      : comm_(comm), kind_(std::move(kind)), n_(n), a_(n * comm.size()), b_(n * comm.size()) {}

  Status Prepare() {
    if (!kind_.starts_with("shared-")) return OkStatus();
    for (Buffer* buffer : {&shared_in_, &shared_out_}) {
      DDPRUN_ASSIGN_OR_RETURN(*buffer, comm_.Allocate(DType::kFloat32, n_));
    }
    return OkStatus();
  }

  Status Run(int64_t index, Duration limit) {
    const int size = comm_.size(), root = static_cast<int>(index % size);
    const Tensor a = Part(a_, 1), b = Part(b_, 1), all_a = Part(a_, size), all_b = Part(b_, size);
    const TimePoint deadline = Clock::now() + limit;
    if (kind_ == "all-reduce") return comm_.AllReduce(a, ReduceOp::kMean).Wait(deadline);
    if (kind_ == "shared-all-reduce")
      return comm_.AllReduce(shared_in_.tensor(), shared_out_.tensor(), ReduceOp::kSum).Wait(deadline);
    if (kind_ == "shared-in-place")
      return comm_.AllReduce(shared_in_.tensor(), ReduceOp::kMax).Wait(deadline);
    if (kind_ == "reduce") return comm_.Reduce(a, b, ReduceOp::kMean, root).Wait(deadline);
    if (kind_ == "reduce-scatter") return comm_.ReduceScatter(all_a, b, ReduceOp::kMean).Wait(deadline);
    if (kind_ == "all-gather") return comm_.AllGather(a, all_b).Wait(deadline);
    if (kind_ == "all-to-all") return comm_.AllToAll(all_a, all_b).Wait(deadline);
    if (kind_ == "broadcast") return comm_.Broadcast(a, root).Wait(deadline);
    if (kind_ == "barrier") return comm_.Barrier().Wait(deadline);
    if (kind_ == "messages") return ExchangeMessages(deadline);
    if (kind_ == "split") return comm_.Split(comm_.rank() % 2).status();
    if (kind_ == "allocate") return comm_.Allocate(DType::kFloat32, n_).status();
    return InvalidArgumentError(StrCat("there is no operation ", kind_));
  }

 private:
  Tensor Part(std::vector<float>& values, int parts) const {
    return {values.data(), n_ * parts, DType::kFloat32};
  }
  Tensor At(std::vector<float>& values, int part) const {
    return {values.data() + part * n_, n_, DType::kFloat32};
  }

  // Every rank with every other one.
  Status ExchangeMessages(TimePoint deadline) {
    std::vector<Work> works;
    for (int r = 0; r < comm_.size(); ++r) {
      if (r == comm_.rank()) continue;
      works.push_back(comm_.Send(At(a_, comm_.rank()), r));
      works.push_back(comm_.Receive(At(b_, r), r));
    }
    for (Work& work : works) DDPRUN_RETURN_IF_ERROR(work.Wait(deadline));
    return OkStatus();
  }

  Communicator& comm_;
  const std::string kind_;
  const int64_t n_;
  std::vector<float> a_, b_;
  Buffer shared_in_, shared_out_;
};

}  // namespace

// fault <operation> <elements> <victim> <signal> <number> <nanoseconds>: runs the operation again and again. The victim
// sends itself the signal that many nanoseconds after it has begun the operation with that number, or as soon as it is
// within an operation after that.
int FailWithinAnOperation(const RankProcess& self, Communicator& comm) {
  const int rank = comm.rank(), victim = std::stoi(self.args[3]), signo = std::stoi(self.args[4]);
  const int64_t number = std::stoll(self.args[5]), delay_ns = std::stoll(self.args[6]);
  FaultBoard board(self.store_dir);
  Operations operations(comm, self.args[1], std::stoll(self.args[2]));
  if (const Status s = operations.Prepare(); !s.ok()) return Fail(self, s.ToString());
  std::thread fault;
  if (rank == victim) {
    fault = std::thread([&] {
      while (board.operation(rank) < number) std::this_thread::yield();
      const int64_t at = Now() + delay_ns;
      while (Now() < at || board.operation(rank) < 0) std::this_thread::yield();
      board.fault_ns(rank).store(Now());
      kill(getpid(), signo);
      while (true) pause();
    });
    fault.detach();
  }
  for (int64_t i = 0;; ++i) {
    board.Enter(rank, i);
    const Status s = operations.Run(i, signo == SIGSTOP && i >= number ? kFaultDeadline : seconds(60));
    if (!s.ok()) board.error_ns(rank).store(Now());
    if (!s.ok()) return Report(self, s);
    board.Exit(rank);
  }
}

}  // namespace ddprun
