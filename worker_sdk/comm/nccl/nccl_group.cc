#include "worker_sdk/comm/nccl/nccl_group.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "worker_sdk/comm/awaited_operation.h"
#include "worker_sdk/comm/host/fabric.h"
#include "worker_sdk/comm/host/retire_gate.h"
#include "worker_sdk/comm/nccl/agreement.h"
#include "worker_sdk/comm/nccl/device_messages.h"
#include "worker_sdk/comm/nccl/nccl_call.h"
#include "worker_sdk/comm/nccl/nccl_communicator.h"
#include "worker_sdk/comm/nccl/nccl_operation.h"
#include "worker_sdk/comm/nccl/note_schedule.h"
#include "worker_sdk/comm/nccl/watch.h"
#include "worker_sdk/core/deadline.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/device/cuda/driver.h"
#include "worker_sdk/device/cuda/event.h"
#include "worker_sdk/device/cuda/memory.h"
#include "worker_sdk/device/cuda/stream.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;
using internal::Call;
using internal::OpKind;

// How often the thread looks at operations in flight.
constexpr Duration kLookPeriod = milliseconds(1);
class NcclGroup final : public internal::Group, public Fabric::Member {
 public:
  NcclGroup(std::shared_ptr<HostGroupInterface> host, NcclDevice device, CudaStream stream)
      : host_(std::move(host)),
        context_(std::move(device.context)),
        nccl_(*device.nccl),
        communicator_(std::in_place, context_, nccl_, std::move(stream)),
        messages_(std::in_place, context_, host_.get()) {}
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
    return std::make_shared<FailedNcclOperation>(host_->Refuse(call, why)->Wait(TimePoint()));
  }
  void Abort(std::string_view reason) override { host_->Abort(reason); }
  StatusOr<std::shared_ptr<void>> Allocate(DType dtype, int64_t count) override {
    return host_->Allocate(dtype, count);
  }
  StatusOr<std::shared_ptr<void>> AllocateOnDevice(DType dtype, int64_t count) override;
  StatusOr<std::shared_ptr<internal::Group>> Split(int color, int key) override;

  // Fabric::Member. The thread finds the end by itself.
  void End(const Status& /*why*/) override {}
  // Blocks until ncclCommAbort has returned: before that, NCCL may access the memory of operations.
  void Retire() override;

 private:
  // The error of all ranks if NCCL has not connected this one because of `why`.
  Status NotConnected(const Status& why);
  Status ShareId(ncclUniqueId* id, TimePoint deadline);
  StatusOr<std::shared_ptr<NcclOperation>> MakeOperation(const Call& call, const void* in, void* out,
                                                         const Stream& stream);
  // Starts an operation of NCCL.
  StatusOr<std::shared_ptr<internal::Operation>> StartOnNccl(Call call, const void* in, void* out,
                                                             const Stream& stream);
  StatusOr<DeviceMemory> AllocateZeroed(int64_t num_bytes);
  void StopThread();
  // ", waiting for rank 3": the ranks that are stopped or cut off. Empty if there are none. Blocks at most 200 ms.
  std::string SilentRanks() const;

  // The functions below run on the thread.
  void Run();
  WatchActions Look();
  Status CommunicatorError(std::string_view gave_up) const;
  void Act(const WatchActions& actions);
  void QueryEvents();
  void CallFor(NcclOperation& operation);
  void Record(NcclOperation& operation);
  void PostCallIfDue();
  void Ask(NcclOperation& operation);
  void DeviceFailed(const Status& why);

  const std::shared_ptr<HostGroupInterface> host_;
  // Since Connect has succeeded; left only after the members below have been destroyed.
  std::optional<Fabric::Membership> membership_;
  const std::shared_ptr<const CudaContext> context_;
  const NcclLibrary& nccl_;

  // Held by callers of Split, AllocateOnDevice and StartOnDevice.
  RetireGate gate_;
  // Used by Connect, and then by the thread only.
  std::optional<NcclCommunicator> communicator_;  // nullopt after Retire
  Status device_error_;                           // the device is lost
  std::optional<DeviceMessages> messages_;        // likewise
  NoteSchedule notes_;
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
  if (membership_) membership_->BeginLeaving();
  if (gate_.closed()) return;  // retired
  std::vector<std::shared_ptr<NcclOperation>> operations;
  {
    const std::lock_guard lock(shared_->mu);
    operations.assign(operations_.begin(), operations_.end());
  }
  // An operation that a stream has waited for is not pending, although the thread may not have looked at it since.
  const bool pending = std::ranges::any_of(operations, [](const auto& o) { return o->IsPending(); });
  operations.clear();
  if (pending || !messages_->IsIdle()) host_->Abort("its communicator was destroyed with operations pending");
  messages_->Stop();
  StopThread();
}

void NcclGroup::Retire() {
  gate_.Close();
  messages_->Stop();
  messages_->AwaitCopies();
  messages_.reset();
  StopThread();
  communicator_->AwaitEnd();
  communicator_.reset();
}

void NcclGroup::StopThread() {
  {
    const std::lock_guard lock(shared_->mu);
    stop_ = true;
    shared_->changed.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

std::string NcclGroup::SilentRanks() const {
  const std::vector<int> silent = host_->RanksThatDoNotAnswer();
  return silent.empty() ? "" : StrCat(", waiting for rank ", StrJoin(silent, ", "));
}

Status NcclGroup::ShareId(ncclUniqueId* id, TimePoint deadline) {
  Status created;
  if (rank() == 0) created = NcclStatus(nccl_, nccl_.ncclGetUniqueId(id), "ncclGetUniqueId", nullptr);
  DDPRUN_RETURN_IF_ERROR(Agree(*host_, created, deadline));
  const Call call{.kind = OpKind::kBroadcast, .dtype = DType::kUInt8, .root = 0, .num_bytes = sizeof(*id)};
  return host_->Start(call, id, id)->Wait(deadline);
}

Status NcclGroup::NotConnected(const Status& why) {
  if (!IsDeadlineExceeded(why)) return WithContext(why, host_->Name());
  // NCCL does not say for which rank it waits.
  std::string whom = SilentRanks();
  if (whom.empty()) {
    whom =
        ", all ranks run, but NCCL does not connect them: check NCCL_SOCKET_IFNAME and the firewall, or set "
        "NCCL_DEBUG=INFO";
  }
  return DeadlineExceededError(StrCat(host_->Name(), " gave up: ", why.message(), whom));
}

Status NcclGroup::Connect(TimePoint deadline) {
  ncclUniqueId id = {};
  DDPRUN_RETURN_IF_ERROR(ShareId(&id, deadline));
  const Status ready =
      communicator_->Connect(id, rank(), size(), deadline, [this] { return host_->status(); });
  // The other ranks wait for this one in NCCL.
  if (!ready.ok() && host_->status().ok()) host_->End(NotConnected(ready));
  DDPRUN_RETURN_IF_ERROR(host_->status());
  // The last rank may have failed after the others were ready.
  DDPRUN_RETURN_IF_ERROR(Agree(*host_, OkStatus(), deadline));
  thread_ = std::thread([this] { Run(); });
  membership_.emplace(*host_->fabric());
  membership_->Join(this);
  return OkStatus();
}

StatusOr<std::shared_ptr<NcclOperation>> NcclGroup::MakeOperation(const Call& call, const void* in, void* out,
                                                                  const Stream& stream) {
  const auto handle = static_cast<CUstream>(stream.handle);
  DDPRUN_RETURN_IF_ERROR(context_->CheckStream(handle));
  DDPRUN_ASSIGN_OR_RETURN(CudaEvent before, CudaEvent::Create(context_));
  DDPRUN_ASSIGN_OR_RETURN(CudaEvent after, CudaEvent::Create(context_));
  DDPRUN_RETURN_IF_ERROR(before.Record(handle));
  return std::make_shared<NcclOperation>(shared_, call, in, out, host_->options().timeout, device(),
                                         NcclEvents{std::move(before), std::move(after)});
}

std::shared_ptr<internal::Operation> NcclGroup::StartOnDevice(const Call& call, const void* in, void* out,
                                                              const Stream& stream) {
  const RetireGate::Use use(gate_);
  if (const Status ended = status(); !ended.ok()) return std::make_shared<FailedNcclOperation>(ended);
  const bool is_message = call.kind == OpKind::kSend || call.kind == OpKind::kReceive;
  auto operation = is_message ? messages_->Start(call, in, out, static_cast<CUstream>(stream.handle))
                              : StartOnNccl(call, in, out, stream);
  return operation.ok() ? *operation : Refuse(call, WithContext(operation.status(), NameOf(call.kind)));
}

StatusOr<std::shared_ptr<internal::Operation>> NcclGroup::StartOnNccl(Call call, const void* in, void* out,
                                                                      const Stream& stream) {
  {
    const std::lock_guard lock(shared_->mu);
    call.index = num_started_++;
  }
  DDPRUN_ASSIGN_OR_RETURN(std::shared_ptr<NcclOperation> operation, MakeOperation(call, in, out, stream));
  host_->NoteCall(call);
  const std::lock_guard lock(shared_->mu);
  operations_.push_back(operation);
  shared_->changed.notify_all();
  return std::shared_ptr<internal::Operation>(std::move(operation));
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
  const RetireGate::Use use(gate_);
  if (!use) return WithContext(status(), "allocate");
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
  const RetireGate::Use use(gate_);
  if (!use) return WithContext(status(), "split");
  DDPRUN_ASSIGN_OR_RETURN(std::shared_ptr<internal::Group> part, host_->Split(color, key));
  if (part == nullptr) return std::shared_ptr<internal::Group>();
  return CreateNcclGroup(std::static_pointer_cast<HostGroupInterface>(std::move(part)),
                         NcclDevice{context_, &nccl_});
}

// --- The thread.

void NcclGroup::Run() {
  const CudaScope scope(*context_);
  if (!scope.status().ok()) DeviceFailed(scope.status());
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
    PostCallIfDue();
    std::unique_lock lock(shared_->mu);
    // A notification for an operation that is not new, such as a deadline that was moved, is seen at the next look.
    const size_t known = looked_at_.size();
    shared_->changed.wait_for(lock, kLookPeriod, [&] { return operations_.size() > known; });
  }
  looked_at_.clear();
  communicator_->Leave([this] { return host_->status(); });
}

Status NcclGroup::CommunicatorError(std::string_view gave_up) const {
  if (communicator_->error().ok()) return OkStatus();
  const Status error = WithContext(communicator_->error(), gave_up);
  // NCCL fails without naming it if a rank has left while other ranks go on.
  const Status left = host_->LeftStatus();
  return left.ok() ? error : Status(left.code(), StrCat(left.message(), "; ", error.message()));
}

WatchActions NcclGroup::Look() {
  QueryEvents();
  communicator_->Query();
  const Status ended = host_->status();
  std::vector<OperationView> views;
  {
    const std::lock_guard lock(shared_->mu);
    for (const auto& operation : looked_at_) views.push_back(operation->view);
  }
  const std::string gave_up = StrCat(host_->Name(), " gave up");
  return Watch({.comm = communicator_->state(),
                .comm_error = CommunicatorError(gave_up),
                .failed_since = communicator_->failed_since(),
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
  if (actions.abort) communicator_->Abort();
}

// Only a lost device ends the use of memory without an abort.
void NcclGroup::DeviceFailed(const Status& why) {
  if (!context_->lost()) return communicator_->Fail(why);
  if (device_error_.ok()) device_error_ = why;
}

void NcclGroup::QueryEvents() {
  for (const auto& operation : looked_at_) {
    if (operation->view.state != OperationView::State::kInFlight || operation->view.happened) continue;
    const StatusOr<bool> happened = operation->events().after.Happened();
    if (!happened.ok()) return DeviceFailed(happened.status());
    if (!*happened) return;  // the later ones are behind it in the stream
    operation->view.happened = true;
  }
}

void NcclGroup::CallFor(NcclOperation& operation) {
  const Status waits = operation.events().before.MakeWait(communicator_->stream());
  if (!waits.ok()) return DeviceFailed(waits);
  const StatusOr<ncclResult_t> called = CallNccl(nccl_, operation.call, operation.in, operation.out, size(),
                                                 communicator_->handle(), communicator_->stream());
  if (!called.ok()) return communicator_->Fail(called.status());
  communicator_->NoteCall(*called, NameOf(operation.call.kind));
  if (communicator_->state() == CommState::kFailed) return;
  const std::lock_guard lock(shared_->mu);
  operation.view.state = OperationView::State::kCalled;
}

void NcclGroup::Record(NcclOperation& operation) {
  const Status recorded = operation.events().after.Record(communicator_->stream());
  recorded.ok() ? operation.SetInFlight() : DeviceFailed(recorded);
}

// The oldest operation may wait for a rank that has made another call.
void NcclGroup::PostCallIfDue() {
  const NcclOperation& oldest = *looked_at_.front();
  TimePoint deadline;
  {
    const std::lock_guard lock(shared_->mu);
    deadline = oldest.view.deadline;
  }
  if (const auto attempt = notes_.Due(oldest.call.index, deadline, Clock::now())) {
    host_->PostCall(oldest.call.index, *attempt);
  }
}

void NcclGroup::Ask(NcclOperation& operation) {
  // The others compare it before they answer.
  const uint64_t oldest = looked_at_.front()->call.index;
  host_->PostCall(oldest, notes_.SendNow(oldest, Clock::now()));
  const bool in_call = operation.view.state == OperationView::State::kCalled &&
                       communicator_->state() == CommState::kInProgress;
  const std::string answer = StrCat(host_->Name(), " gave up operation ", operation.call.index,
                                    " on the GPU (", Describe(operation.call), ")",
                                    in_call ? ": its call of NCCL has not returned" : "", SilentRanks());
  const Status left = host_->LeftStatus();
  const std::lock_guard lock(shared_->mu);
  operation.view.question = OperationView::Question::kAnswered;
  operation.view.answer = left.ok() ? DeadlineExceededError(answer) : left;
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
  DDPRUN_RETURN_IF_ERROR(AgreeOnVersion(*host, *device->nccl, deadline), "NCCL");
  const auto group = std::make_shared<NcclGroup>(std::move(host), *device, *std::move(stream));
  DDPRUN_RETURN_IF_ERROR(group->Connect(deadline), "NCCL");
  internal::WaitsAreUnknown();
  return std::shared_ptr<internal::Group>(group);
}

}  // namespace ddprun
