#include "worker_sdk/comm/nccl/nccl_group.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "worker_sdk/comm/nccl/nccl_call.h"
#include "worker_sdk/comm/nccl/nccl_operation.h"
#include "worker_sdk/comm/nccl/watch.h"
#include "worker_sdk/core/deadline.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/device/cuda/driver.h"
#include "worker_sdk/device/cuda/event.h"
#include "worker_sdk/device/cuda/memory.h"
#include "worker_sdk/device/cuda/poll.h"
#include "worker_sdk/device/cuda/stream.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;
using internal::Call;
using internal::OpKind;

// How often the thread looks at operations in flight.
constexpr Duration kLookPeriod = milliseconds(1);
// How long NCCL may take to complete operations on other ranks before the communicator is destroyed.
constexpr Duration kFinalizeLimit = seconds(1);
// How long ncclCommAbort may take. It waits for NCCL's threads and for its kernels, which see the abort.
constexpr Duration kAbortLimit = seconds(10);

// Collective. `mine` of each rank, by rank.
template <typename T>
StatusOr<std::vector<T>> Gather(HostGroupInterface& host, const T& mine, TimePoint deadline) {
  std::vector<T> all(host.size());
  const Call call{.kind = OpKind::kAllGather, .dtype = DType::kUInt8, .num_bytes = sizeof(mine)};
  DDPRUN_RETURN_IF_ERROR(host.Start(call, &mine, all.data())->Wait(deadline));
  return all;
}

// Whether a rank can go on, for an exchange among all ranks.
struct Standing {
  int32_t code = 0;
  std::array<char, 252> text = {};
};

// Collective. OK if `mine` is OK on all ranks; otherwise the error of the first rank that has one, with its number.
Status Agree(HostGroupInterface& host, const Status& mine, TimePoint deadline) {
  Standing own{.code = static_cast<int32_t>(mine.code())};
  const std::string text = StrCat(host.Name(), ": ", mine.message());
  std::copy_n(text.begin(), std::min(text.size(), own.text.size() - 1), own.text.begin());
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<Standing> all, Gather(host, own, deadline));
  for (const Standing& standing : all) {
    if (standing.code != 0) return Status(static_cast<StatusCode>(standing.code), standing.text.data());
  }
  return OkStatus();
}

class NcclGroup final : public internal::Group {
 public:
  NcclGroup(std::shared_ptr<HostGroupInterface> host, NcclDevice device, CudaStream stream)
      : host_(std::move(host)),
        context_(std::move(device.context)),
        nccl_(*device.nccl),
        stream_(std::move(stream)) {}
  ~NcclGroup() override;

  // Collective. Connects the ranks and starts the thread. Must be called once, before any other function.
  Status Connect(TimePoint deadline);

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  Status status() const override { return host_->status(); }
  Device device() const override { return {DeviceType::kCuda, context_->index()}; }

  std::shared_ptr<internal::Operation> Start(const Call& call, const void* in, void* out) override {
    return host_->Start(call, in, out);
  }
  std::shared_ptr<internal::Operation> StartOnDevice(const Call& call, const void* in, void* out,
                                                     const Stream& stream) override;
  std::shared_ptr<internal::Operation> Refuse(const Call& call, const Status& why) override {
    return host_->Refuse(call, why);
  }
  void Abort(std::string_view reason) override { host_->Abort(reason); }
  StatusOr<std::shared_ptr<void>> Allocate(DType dtype, int64_t count) override {
    return host_->Allocate(dtype, count);
  }
  StatusOr<std::shared_ptr<void>> AllocateOnDevice(DType dtype, int64_t count) override;
  StatusOr<std::shared_ptr<internal::Group>> Split(int color, int key) override;

 private:
  Status ShareId(ncclUniqueId* id, TimePoint deadline);
  StatusOr<std::shared_ptr<NcclOperation>> MakeOperation(const Call& call, const void* in, void* out,
                                                         const Stream& stream);
  StatusOr<DeviceMemory> AllocateZeroed(int64_t num_bytes);

  // The functions below run on the thread.
  void Run();
  WatchActions Look();
  void Act(const WatchActions& actions);
  void QueryEvents();
  void QueryCommunicator();
  void CallFor(NcclOperation& operation);
  void Record(NcclOperation& operation);
  void Ask(NcclOperation& operation);
  void AbortCommunicator();
  void Destroy();
  void SetFailed(const Status& why);

  const std::shared_ptr<HostGroupInterface> host_;
  const std::shared_ptr<const CudaContext> context_;
  const NcclLibrary& nccl_;
  const CudaStream stream_;  // of communication

  // Used by Connect, and then by the thread only.
  ncclComm_t comm_ = nullptr;
  CommState comm_state_ = CommState::kInitializing;
  Status comm_error_;
  TimePoint failed_since_ = {};
  Status device_error_;
  // The operations of the current view, in their order.
  std::vector<std::shared_ptr<NcclOperation>> looked_at_;

  const std::shared_ptr<NcclShared> shared_ = std::make_shared<NcclShared>();
  // Guarded by shared_->mu.
  std::deque<std::shared_ptr<NcclOperation>> operations_;  // those that have not finished
  bool stop_ = false;
  uint64_t num_started_ = 0;

  std::thread thread_;
};

// --- The caller's side.

NcclGroup::~NcclGroup() {
  bool pending = false;
  {
    const std::lock_guard lock(shared_->mu);
    pending = !operations_.empty();
  }
  if (pending) host_->Abort("its communicator was destroyed with operations pending");
  {
    const std::lock_guard lock(shared_->mu);
    stop_ = true;
    shared_->changed.notify_all();
  }
  if (thread_.joinable()) {
    thread_.join();
  } else {
    AbortCommunicator();  // Connect failed
  }
}

Status NcclGroup::ShareId(ncclUniqueId* id, TimePoint deadline) {
  Status created;
  if (rank() == 0) created = NcclStatus(nccl_, nccl_.ncclGetUniqueId(id), "ncclGetUniqueId", nullptr);
  DDPRUN_RETURN_IF_ERROR(Agree(*host_, created, deadline));
  const Call call{.kind = OpKind::kBroadcast, .dtype = DType::kUInt8, .root = 0, .num_bytes = sizeof(*id)};
  return host_->Start(call, id, id)->Wait(deadline);
}

Status NcclGroup::Connect(TimePoint deadline) {
  ncclUniqueId id = {};
  DDPRUN_RETURN_IF_ERROR(ShareId(&id, deadline));
  {
    const CudaScope scope(*context_);
    Status started = scope.status();
    if (started.ok()) started = StartNcclCommunicator(nccl_, id, rank(), size(), &comm_);
    const Status ready =
        !started.ok() ? started : PollUntil(*context_, deadline, "NCCL", [&]() -> StatusOr<bool> {
          DDPRUN_RETURN_IF_ERROR(host_->status());
          QueryCommunicator();
          DDPRUN_RETURN_IF_ERROR(comm_error_);
          return comm_state_ == CommState::kReady;
        });
    // The other ranks wait for this one in NCCL.
    if (!ready.ok() && host_->status().ok()) host_->End(WithContext(ready, host_->Name()));
  }
  DDPRUN_RETURN_IF_ERROR(host_->status());
  // The last rank may have failed after the others were ready.
  DDPRUN_RETURN_IF_ERROR(Agree(*host_, OkStatus(), deadline));
  thread_ = std::thread([this] { Run(); });
  return OkStatus();
}

StatusOr<std::shared_ptr<NcclOperation>> NcclGroup::MakeOperation(const Call& call, const void* in, void* out,
                                                                  const Stream& stream) {
  const auto handle = static_cast<CUstream>(stream.handle);
  if (call.kind == OpKind::kSend || call.kind == OpKind::kReceive) {
    return InvalidArgumentError("messages between GPUs are not supported: use memory of the host");
  }
  DDPRUN_RETURN_IF_ERROR(context_->CheckStream(handle));
  DDPRUN_ASSIGN_OR_RETURN(CudaEvent before, CudaEvent::Create(context_));
  DDPRUN_ASSIGN_OR_RETURN(CudaEvent after, CudaEvent::Create(context_));
  DDPRUN_RETURN_IF_ERROR(before.Record(handle));
  return std::make_shared<NcclOperation>(shared_, call, in, out, host_->options().timeout, device(),
                                         std::move(before), std::move(after));
}

std::shared_ptr<internal::Operation> NcclGroup::StartOnDevice(const Call& call, const void* in, void* out,
                                                              const Stream& stream) {
  if (const Status ended = status(); !ended.ok()) return std::make_shared<FailedNcclOperation>(ended);
  Call numbered = call;
  {
    const std::lock_guard lock(shared_->mu);
    numbered.index = num_started_++;
  }
  auto operation = MakeOperation(numbered, in, out, stream);
  if (!operation.ok()) {
    return Refuse(call, WithContext(operation.status(), NameOf(call.kind)));
  }
  const std::lock_guard lock(shared_->mu);
  operations_.push_back(*operation);
  shared_->changed.notify_all();
  return *std::move(operation);
}

StatusOr<DeviceMemory> NcclGroup::AllocateZeroed(int64_t num_bytes) {
  DDPRUN_ASSIGN_OR_RETURN(DeviceMemory memory, DeviceMemory::Allocate(context_, num_bytes));
  DDPRUN_ASSIGN_OR_RETURN(const CudaStream stream, CudaStream::Create(context_));
  DDPRUN_RETURN_IF_ERROR(FillBytes(*context_, memory.data(), 0, num_bytes, stream.get()));
  DDPRUN_RETURN_IF_ERROR(
      stream.Await(DeadlineAfter(host_->options().timeout), "filling new memory with zeros"));
  return memory;
}

StatusOr<std::shared_ptr<void>> NcclGroup::AllocateOnDevice(DType dtype, int64_t count) {
  const TimePoint deadline = DeadlineAfter(host_->options().timeout);
  struct Arguments {
    DType dtype;
    int64_t count;
  };
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<Arguments> all, Gather(*host_, Arguments{dtype, count}, deadline),
                          "allocate");
  const auto differs = std::ranges::find_if(
      all, [&](const Arguments& a) { return a.dtype != all[0].dtype || a.count != all[0].count; });
  if (differs != all.end()) {
    return InvalidArgumentError(StrCat("allocate: the ranks of the group differ: rank 0 allocates ",
                                       all[0].count, " ", NameOf(all[0].dtype), " on its GPU, rank ",
                                       differs - all.begin(), " allocates ", differs->count, " ",
                                       NameOf(differs->dtype)));
  }
  const int64_t num_bytes = std::max<int64_t>(count * SizeOf(dtype), 1);  // not null
  StatusOr<DeviceMemory> memory = AllocateZeroed(num_bytes);
  DDPRUN_RETURN_IF_ERROR(Agree(*host_, memory.ok() ? OkStatus() : memory.status(), deadline), "allocate");
  const auto owner = std::make_shared<DeviceMemory>(*std::move(memory));
  return std::shared_ptr<void>(owner, owner->data());
}

StatusOr<std::shared_ptr<internal::Group>> NcclGroup::Split(int color, int key) {
  DDPRUN_ASSIGN_OR_RETURN(std::shared_ptr<internal::Group> part, host_->Split(color, key));
  if (part == nullptr) return std::shared_ptr<internal::Group>();
  return CreateNcclGroup(std::static_pointer_cast<HostGroupInterface>(std::move(part)),
                         NcclDevice{context_, &nccl_});
}

// --- The thread.

void NcclGroup::Run() {
  const CudaScope scope(*context_);
  if (!scope.status().ok()) device_error_ = scope.status();
  while (true) {
    {
      std::unique_lock lock(shared_->mu);
      shared_->changed.wait(lock, [this] { return stop_ || !operations_.empty(); });
      if (operations_.empty()) break;
      looked_at_.assign(operations_.begin(), operations_.end());
    }
    const WatchActions actions = Look();
    Act(actions);
    if (!actions.none()) continue;
    std::unique_lock lock(shared_->mu);
    // A notification for an operation that is not new, such as a deadline that was moved, is seen at the next look.
    const size_t known = looked_at_.size();
    shared_->changed.wait_for(lock, kLookPeriod, [&] { return operations_.size() > known; });
  }
  looked_at_.clear();
  Destroy();
}

WatchActions NcclGroup::Look() {
  QueryEvents();
  QueryCommunicator();
  const Status ended = host_->status();
  std::vector<OperationView> views;
  {
    const std::lock_guard lock(shared_->mu);
    for (const auto& operation : looked_at_) views.push_back(operation->view);
  }
  const std::string gave_up = StrCat(host_->Name(), " gave up");
  return Watch({.comm = comm_state_,
                .comm_error = comm_error_.ok() ? OkStatus() : WithContext(comm_error_, gave_up),
                .failed_since = failed_since_,
                .device_error = device_error_.ok() ? OkStatus() : WithContext(device_error_, gave_up),
                .fabric_ended = !ended.ok(),
                .fabric_error = ended,
                .operations = views},
               Clock::now());
}

void NcclGroup::Act(const WatchActions& actions) {
  for (const WatchActions::Finish& finish : actions.finish) {
    const std::shared_ptr<NcclOperation>& operation = looked_at_[finish.operation];
    {
      const std::lock_guard lock(shared_->mu);
      std::erase(operations_, operation);
    }
    operation->Finish(finish.status);
  }
  if (actions.record) Record(*looked_at_[*actions.record]);
  if (actions.call) CallFor(*looked_at_[*actions.call]);
  if (actions.ask) Ask(*looked_at_[*actions.ask]);
  if (actions.end_fabric) host_->End(*actions.end_fabric);
  if (actions.abort) AbortCommunicator();
}

void NcclGroup::QueryEvents() {
  for (const auto& operation : looked_at_) {
    if (operation->view.state != OperationView::State::kInFlight || operation->view.happened) continue;
    const StatusOr<bool> happened = operation->after.Happened();
    if (!happened.ok()) {
      if (device_error_.ok()) device_error_ = happened.status();
      return;
    }
    if (!*happened) return;  // the later ones are behind it in the stream
    operation->view.happened = true;
  }
}

void NcclGroup::QueryCommunicator() {
  if (comm_ == nullptr || !comm_error_.ok() || comm_state_ == CommState::kAborted) return;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t result = nccl_.ncclCommGetAsyncError(comm_, &state);
  if (result != ncclSuccess) return SetFailed(NcclStatus(nccl_, result, "ncclCommGetAsyncError", comm_));
  if (state == ncclSuccess) {
    comm_state_ = CommState::kReady;
  } else if (state != ncclInProgress) {
    SetFailed(NcclStatus(nccl_, state, "NCCL", comm_));
  } else if (comm_state_ != CommState::kInitializing) {
    comm_state_ = CommState::kInProgress;
  }
}

void NcclGroup::SetFailed(const Status& why) {
  comm_state_ = CommState::kFailed;
  comm_error_ = why;
  failed_since_ = Clock::now();
}

void NcclGroup::CallFor(NcclOperation& operation) {
  const Status waits = operation.before.MakeWait(stream_.get());
  if (!waits.ok()) {
    device_error_ = waits;
    return;
  }
  const StatusOr<ncclResult_t> called =
      CallNccl(nccl_, operation.call, operation.in, operation.out, size(), comm_, stream_.get());
  if (!called.ok()) return SetFailed(called.status());
  const Status status = NcclStatus(nccl_, *called, NameOf(operation.call.kind), comm_);
  if (!status.ok()) return SetFailed(status);
  comm_state_ = CommState::kInProgress;  // until it was queried: this also covers a call that is complete
  const std::lock_guard lock(shared_->mu);
  operation.view.state = OperationView::State::kCalled;
}

void NcclGroup::Record(NcclOperation& operation) {
  const Status recorded = operation.after.Record(stream_.get());
  if (recorded.ok()) return operation.SetInFlight();
  device_error_ = recorded;
}

void NcclGroup::Ask(NcclOperation& operation) {
  std::string answer = StrCat(host_->Name(), " gave up operation ", operation.call.index, " on the GPU (",
                              Describe(operation.call), ")");
  const std::vector<int> silent = host_->RanksThatDoNotAnswer();
  if (!silent.empty()) answer += StrCat(", waiting for rank ", StrJoin(silent, ", "));
  const Status left = host_->LeftStatus();
  const std::lock_guard lock(shared_->mu);
  operation.view.question = OperationView::Question::kAnswered;
  operation.view.answer = left.ok() ? DeadlineExceededError(answer) : left;
}

void NcclGroup::AbortCommunicator() {
  if (comm_ != nullptr && comm_state_ != CommState::kAborted && !context_->lost()) {
    context_->RunBlocking([abort = nccl_.ncclCommAbort, comm = comm_] { (void)abort(comm); }, kAbortLimit);
  }
  comm_state_ = CommState::kAborted;
}

// A rank that leaves while others still receive its data must not abort the communicator.
void NcclGroup::Destroy() {
  if (comm_ == nullptr || comm_state_ == CommState::kAborted || context_->lost()) return;
  QueryCommunicator();
  if (host_->status().ok() && comm_error_.ok() &&
      NcclStatus(nccl_, nccl_.ncclCommFinalize(comm_), "ncclCommFinalize", comm_).ok()) {
    const Status finalized =
        PollUntil(*context_, DeadlineAfter(kFinalizeLimit), "NCCL", [&]() -> StatusOr<bool> {
          comm_state_ = CommState::kInProgress;
          QueryCommunicator();
          DDPRUN_RETURN_IF_ERROR(comm_error_);
          return comm_state_ == CommState::kReady;
        });
    if (finalized.ok()) {
      context_->RunBlocking([destroy = nccl_.ncclCommDestroy, comm = comm_] { (void)destroy(comm); },
                            kAbortLimit);
      comm_state_ = CommState::kAborted;
      return;
    }
  }
  AbortCommunicator();
}

}  // namespace

StatusOr<NcclDevice> OpenNcclDevice(const Device& device, int local_rank) {
  DDPRUN_ASSIGN_OR_RETURN(const CudaDriver* driver, OpenCudaDriver());
  DDPRUN_ASSIGN_OR_RETURN(const NcclLibrary* nccl, OpenNcclLibrary());
  int index = device.index;
  if (index < 0) {
    DDPRUN_ASSIGN_OR_RETURN(const std::vector<CudaDevice> devices, ListCudaDevices(*driver));
    index = devices.size() == 1 ? 0 : local_rank;
  }
  DDPRUN_ASSIGN_OR_RETURN(std::shared_ptr<const CudaContext> context, CudaContext::Open(driver, index));
  return NcclDevice{std::move(context), nccl};
}

StatusOr<std::shared_ptr<internal::Group>> CreateNcclGroup(std::shared_ptr<HostGroupInterface> host,
                                                           const StatusOr<NcclDevice>& device) {
  const TimePoint deadline = DeadlineAfter(host->options().setup_timeout);
  StatusOr<CudaStream> stream = device.ok() ? CudaStream::Create(device->context) : device.status();
  DDPRUN_RETURN_IF_ERROR(Agree(*host, stream.ok() ? OkStatus() : stream.status(), deadline), "GPU");
  const auto group = std::make_shared<NcclGroup>(std::move(host), *device, *std::move(stream));
  DDPRUN_RETURN_IF_ERROR(group->Connect(deadline), "NCCL");
  return std::shared_ptr<internal::Group>(group);
}

}  // namespace ddprun
