#include "worker_sdk/comm/nccl/testing/fault_rank.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>

#include "base/check.h"
#include "ddprun/communicator.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/host/fault_board.h"
#include "worker_sdk/comm/host/host_group.h"
#include "worker_sdk/comm/nccl/nccl_group.h"
#include "worker_sdk/comm/nccl/testing/stand_in_functions.h"
#include "worker_sdk/core/deadline.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/device/cuda/stream.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSystemError = 2;  // ncclSystemError
constexpr int kWorksPerOperation = 2;

int64_t Now() { return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count(); }

// The function of NCCL that an operation calls first.
std::string FunctionOf(const std::string& operation) {
  if (operation == "all-reduce") return "ncclAllReduce";
  if (operation == "reduce") return "ncclReduce";
  if (operation == "reduce-scatter") return "ncclReduceScatter";
  if (operation == "all-gather") return "ncclAllGather";
  if (operation == "broadcast") return "ncclBroadcast";
  DDPRUN_CHECK(operation == "all-to-all", "there is no operation " << operation);
  return "ncclSend";
}

void Set(const char* variable, const std::string& value) {
  setenv(StrCat("DDPRUN_STAND_IN_", variable).c_str(), value.c_str(), 1);
}

class FaultRank {
 public:
  explicit FaultRank(RankProcess& self)
      : self_(self),
        fault_(GpuFault::FromArgs(self.args)),
        rank_(self.options.rank.value()),
        size_(self.options.world_size),
        board_(self.store_dir) {}

  // Returns the first error, when nothing is left.
  Status Run();

 private:
  [[nodiscard]] bool is_victim() const { return rank_ == fault_.victim; }
  [[nodiscard]] bool in_call() const { return fault_.kind == "fail" || fault_.kind == "hang"; }
  // Whether operations end only with their deadline.
  [[nodiscard]] bool is_silent() const {
    return fault_.kind == "stop" || fault_.kind == "hang" || fault_.kind == "leave";
  }

  void PrepareStandIn() const;
  Status Setup();
  Status RunOperations();
  Status RunOperation();
  Status RunMessages(const OpOptions& on);
  Work Start(const OpOptions& on);
  Status AbortIt();
  void Enter(int64_t number);
  void AwaitMomentAndFail();
  void FailNow();

  RankProcess& self_;
  const GpuFault fault_;
  const int rank_, size_;
  FaultBoard board_;
  std::optional<NcclDevice> device_;
  Communicator comm_;
  Buffer in_, out_;
  std::optional<CudaStream> stream_;
  std::atomic<bool> is_setup_{false};
  std::atomic<bool> ended_{false};  // the fault cannot happen any more
};

void FaultRank::PrepareStandIn() const {
  Set("SEED", StrCat(fault_.seed + rank_));
  if (!is_victim()) return;
  if (fault_.moment == "abort") {
    Set("HANG", "ncclCommAbort");
    Set("HANG_MS", StrCat(ToMillis(fault_.kind == "hang" ? kSlowAbort : kAbortWindow)));
  } else if (fault_.moment == "init" && !in_call()) {
    Set("HANG", "ncclCommInitRankConfig");
    Set("HANG_MS", StrCat(ToMillis(kInitWindow)));
  } else if (in_call()) {
    const bool hangs = fault_.kind == "hang";
    const int64_t calls_per_work = fault_.operation == "all-to-all" && !hangs ? size_ : 1;
    Set(hangs ? "HANG" : "FAIL",
        fault_.moment == "init" ? "ncclCommInitRankConfig" : FunctionOf(fault_.operation));
    if (fault_.moment != "init")
      Set(hangs ? "HANG_AT" : "FAIL_AT",
          StrCat(1 + (fault_.number - 1) * kWorksPerOperation * calls_per_work));
  }
}

Status FaultRank::Setup() {
  self_.options.timeout = is_silent() ? kGpuFaultDeadline : seconds(60);
  self_.options.setup_timeout = fault_.moment == "init" ? kGpuFaultSetupTimeout : seconds(60);
  FakeFileStore store(self_.store_dir);
  DDPRUN_ASSIGN_OR_RETURN(
      device_, OpenNcclDevice({DeviceType::kCuda, -1}, static_cast<int>(self_.options.local_rank.value())));
  DDPRUN_ASSIGN_OR_RETURN(std::shared_ptr<HostGroupInterface> host, CreateHostGroup(self_.options, &store));
  Enter(0);
  DDPRUN_ASSIGN_OR_RETURN(std::shared_ptr<internal::Group> group, CreateNcclGroup(std::move(host), *device_));
  comm_ = Communicator(std::move(group));
  for (Buffer* buffer : {&in_, &out_}) {
    DDPRUN_ASSIGN_OR_RETURN(*buffer,
                            comm_.Allocate(DType::kFloat32, fault_.num_elems * size_, comm_.device()));
  }
  DDPRUN_ASSIGN_OR_RETURN(stream_, CudaStream::Create(device_->context));
  board_.Exit(rank_);
  is_setup_ = true;
  return OkStatus();
}

void FaultRank::Enter(int64_t number) {
  const bool begins = number == (fault_.moment == "init" ? 0 : fault_.number);
  if (is_victim() && in_call() && begins) board_.fault_ns(rank_).store(Now());
  board_.Enter(rank_, number);
}

Work FaultRank::Start(const OpOptions& on) {
  const Tensor all_in = in_.tensor(), all_out = out_.tensor();
  const auto part = [&](const Tensor& all) {
    return Tensor{all.data, fault_.num_elems, all.dtype, all.device};
  };
  const std::string& kind = fault_.operation;
  if (kind == "reduce") return comm_.Reduce(part(all_in), part(all_out), ReduceOp::kSum, 0, on);
  if (kind == "reduce-scatter") return comm_.ReduceScatter(all_in, part(all_out), ReduceOp::kSum, on);
  if (kind == "all-gather") return comm_.AllGather(part(all_in), all_out, on);
  if (kind == "all-to-all") return comm_.AllToAll(all_in, all_out, on);
  if (kind == "broadcast") return comm_.Broadcast(all_in, size_ - 1, on);
  return comm_.AllReduce(all_in, all_out, ReduceOp::kMax, on);
}

// A stream waits for the first one, the host for both.
Status FaultRank::RunOperation() {
  const OpOptions on{.stream = {comm_.device(), stream_->get()}};
  if (fault_.operation == kGpuMessages) return RunMessages(on);
  Work first = Start(on);
  Status status = first.WaitOn(on.stream);
  Work second = Start(on);
  status.Update(first.Wait());
  status.Update(second.Wait());
  return status;
}

Status FaultRank::RunMessages(const OpOptions& on) {
  const int next = (rank_ + 1) % size_, previous = (rank_ + size_ - 1) % size_;
  Work sent = comm_.Send(in_.tensor(), next, on);
  Work received = comm_.Receive(out_.tensor(), previous, on);
  Status status = received.WaitOn(on.stream);
  status.Update(sent.Wait());
  status.Update(received.Wait());
  status.Update(comm_.Barrier().Wait());
  return status;
}

// Once the other ranks wait for this one.
Status FaultRank::AbortIt() {
  for (int r = 0; r < size_; ++r) {
    while (r != rank_ && board_.operation(r) < fault_.number) poll(nullptr, 0, 1);
  }
  poll(nullptr, 0, 20);  // usually they have called NCCL by then; all orders are allowed
  board_.fault_ns(rank_).store(Now());
  comm_.Abort(kReasonOfAbort);
  return RunOperation();
}

Status FaultRank::RunOperations() {
  for (int64_t i = 1;; ++i) {
    Enter(i);
    const bool aborts = fault_.moment == "abort" && rank_ == fault_.Aborter(size_) && i == fault_.number;
    DDPRUN_RETURN_IF_ERROR(aborts ? AbortIt() : RunOperation());
    board_.Exit(rank_);
    if (fault_.moment != "between" || !is_victim() || i < fault_.number) continue;
    FailNow();
    if (fault_.kind == "leave") return OkStatus();
  }
}

void FaultRank::FailNow() {
  board_.fault_ns(rank_).store(Now());
  if (fault_.kind == "kill") kill(getpid(), SIGKILL);
  if (fault_.kind == "stop") kill(getpid(), SIGSTOP);
  if (fault_.kind == "exit") syscall(SYS_exit_group, 0);  // ThreadSanitizer's _exit sleeps for 1 s
  if (fault_.kind == "error")
    FindInStandIn<decltype(StandInFailCommunicators)>("libnccl.so.2",
                                                      "StandInFailCommunicators")(kSystemError);
  if (fault_.kind == "lost")
    FindInStandIn<decltype(StandInLoseDevice)>("libcuda.so.1",
                                               "StandInLoseDevice")(device_->context->index());
}

// Within an operation or an abort, which another thread waits for.
void FaultRank::AwaitMomentAndFail() {
  const int64_t first = fault_.moment == "init" ? 0 : fault_.number;
  const auto within = [&] {
    const bool aborting = is_setup_ && !comm_.status().ok();
    return board_.operation(rank_) >= first && (fault_.moment != "abort" || aborting);
  };
  const auto yield_until = [&](auto reached) {
    while (!reached() && !ended_) std::this_thread::yield();
  };
  yield_until(within);
  const int64_t at = Now() + fault_.delay_ns;
  yield_until([&] { return Now() >= at && within(); });
  if (!ended_) FailNow();
}

Status FaultRank::Run() {
  PrepareStandIn();
  const bool by_itself = fault_.moment != "between" && !in_call();
  std::jthread faults;
  if (is_victim() && by_itself) faults = std::jthread([this] { AwaitMomentAndFail(); });
  Status status = Setup();
  if (status.ok()) status = RunOperations();
  board_.error_ns(rank_).store(Now());
  ended_ = true;
  if (faults.joinable()) faults.join();
  // The stream goes on after an operation that failed.
  if (stream_ && !device_->context->lost())
    status.Update(stream_->Await(DeadlineAfter(seconds(20)), "the stream of the test"));
  return status;
}

}  // namespace

std::vector<std::string> GpuFault::ToArgs() const {
  return {kind,           moment,           StrCat(victim), operation, StrCat(num_elems),
          StrCat(number), StrCat(delay_ns), StrCat(seed)};
}

GpuFault GpuFault::FromArgs(const std::vector<std::string>& args) {
  DDPRUN_CHECK(args.size() == 8, "not the arguments of a GpuFault");
  return {args[0],
          args[1],
          std::stoi(args[2]),
          args[3],
          std::stoll(args[4]),
          std::stoll(args[5]),
          std::stoll(args[6]),
          std::stoll(args[7])};
}

int RunGpuFaultRank(RankProcess& self) {
  const Status status = FaultRank(self).Run();
  const int rank = self.options.rank.value();
  FaultBoard(self.store_dir).ended_ns(rank).store(Now());
  const StandInCounts left = CountsOfStandIn();
  const bool none = left.contexts + left.streams + left.events + left.allocations + left.pinned +
                        left.modules + left.communicators ==
                    0;
  const std::string text =
      none ? ""
           : StrCat("; left: contexts: ", left.contexts, ", streams: ", left.streams,
                    ", events: ", left.events, ", allocations: ", left.allocations, ", pinned: ", left.pinned,
                    ", modules: ", left.modules, ", communicators: ", left.communicators);
  const Status set =
      FakeFileStore(self.store_dir).Set(StrCat("outcome/", rank), StrCat(status.ToString(), text));
  DDPRUN_CHECK(set.ok(), set);
  return none ? kFaultEnded : kFaultLeft;
}

}  // namespace ddprun
