#include "worker_sdk/comm/nccl/device_messages.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "worker_sdk/core/deadline.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/device/cuda/event.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;
using internal::Call;
using internal::OpKind;
using Kind = StagingAction::Kind;

// How often the thread looks at messages, and how often after it had nothing to do for kBusyTime.
constexpr Duration kLookPeriod = std::chrono::microseconds(50);
constexpr Duration kIdleLookPeriod = std::chrono::microseconds(500);
constexpr Duration kBusyTime = milliseconds(5);

}  // namespace

class DeviceMessage final : public NcclOperation {
 public:
  // `events.after` is recorded after each copy.
  DeviceMessage(std::shared_ptr<NcclShared> shared, const Call& the_call, const void* the_in, void* the_out,
                Duration timeout, const Device& device, NcclEvents events,
                std::shared_ptr<StagedMessage> the_host)
      : NcclOperation(std::move(shared), the_call, the_in, the_out, timeout, device, std::move(events)),
        host(std::move(the_host)) {}

  // The caller moves the data in the host backend.
  Status Wait(TimePoint deadline) override {
    (void)host->Wait(deadline);
    return NcclOperation::Wait(deadline);
  }
  Status WaitOn(const Stream& stream) override {
    // The copy of the last piece is queued when it has arrived.
    if (!sends() && stream.device == device()) (void)host->Wait(DeadlineAfter(timeout()));
    return NcclOperation::WaitOn(stream);
  }
  [[nodiscard]] bool sends() const { return call.kind == OpKind::kSend; }

  const std::shared_ptr<StagedMessage> host;

  // Used by the thread only.
  bool begun = false;
  std::span<char> window;
  bool stream_reached = false;
  uint64_t num_copied = 0;
  bool copying = false;
  bool recorded = false;  // copying: in events().after
  bool gave_up = false;
};

StatusOr<DeviceMessages::Resources> DeviceMessages::Allocate(
    const std::shared_ptr<const CudaContext>& context, int num_queues) {
  if (num_queues == 0) return FailedPreconditionError("the group has one rank");
  DDPRUN_ASSIGN_OR_RETURN(PinnedMemory memory,
                          PinnedMemory::Allocate(context, StagingWindows::NumBytes(num_queues)));
  DDPRUN_ASSIGN_OR_RETURN(CudaStream to_host, CudaStream::Create(context));
  DDPRUN_ASSIGN_OR_RETURN(CudaStream to_device, CudaStream::Create(context));
  return Resources{std::move(to_host), std::move(to_device), std::move(memory)};
}

DeviceMessages::DeviceMessages(std::shared_ptr<const CudaContext> context, HostGroupInterface* host)
    : context_(std::move(context)), host_(host), resources_(Allocate(context_, num_queues())) {
  if (!resources_.ok()) return;
  const PinnedMemory& memory = resources_->memory;
  windows_ = StagingWindows({static_cast<char*>(memory.data()), static_cast<size_t>(memory.num_bytes())},
                            num_queues());
}

DeviceMessages::~DeviceMessages() { Stop(); }

int DeviceMessages::QueueOf(const Call& call) const {
  const int other = call.root < host_->rank() ? call.root : call.root - 1;
  return 2 * other + (call.kind == OpKind::kSend ? 1 : 0);
}

StatusOr<std::shared_ptr<internal::Operation>> DeviceMessages::Start(const Call& call, const void* in,
                                                                     void* out, CUstream stream) {
  DDPRUN_RETURN_IF_ERROR(resources_.status(), "staging memory for messages");
  DDPRUN_RETURN_IF_ERROR(context_->CheckStream(stream));
  DDPRUN_ASSIGN_OR_RETURN(CudaEvent before, CudaEvent::Create(context_));
  DDPRUN_ASSIGN_OR_RETURN(CudaEvent after, CudaEvent::Create(context_));
  DDPRUN_RETURN_IF_ERROR(before.Record(stream));
  auto message = std::make_shared<DeviceMessage>(
      shared_, call, in, out, host_->options().timeout, Device{DeviceType::kCuda, context_->index()},
      NcclEvents{std::move(before), std::move(after)}, host_->StartStaged(call));
  const std::lock_guard lock(shared_->mu);
  queues_[QueueOf(call)].push_back(message);
  ++num_started_;
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  shared_->changed.notify_all();
  return std::shared_ptr<internal::Operation>(std::move(message));
}

bool DeviceMessages::IsIdle() const {
  const std::lock_guard lock(shared_->mu);
  return queues_.empty();
}

void DeviceMessages::Stop() {
  {
    const std::lock_guard lock(shared_->mu);
    stop_ = true;
    shared_->changed.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void DeviceMessages::AwaitCopies() const {
  if (!resources_.ok()) return;
  for (const CudaStream* stream : {&resources_->to_host, &resources_->to_device}) {
    if (!context_->lost()) (void)stream->Await(TimePoint::max(), "copies of messages");
  }
}

// --- The thread.

void DeviceMessages::Run() {
  const CudaScope scope(*context_);
  if (!scope.status().ok()) Fail(scope.status());
  std::vector<std::shared_ptr<DeviceMessage>> first;
  TimePoint last_acted = Clock::now();
  while (true) {
    uint64_t num_seen = 0;
    {
      std::unique_lock lock(shared_->mu);
      shared_->changed.wait(lock, [this] { return stop_ || !queues_.empty(); });
      if (queues_.empty()) return;
      for (const auto& [number, queue] : queues_) first.push_back(queue.front());
      num_seen = num_started_;
    }
    // Nothing else notices that the device is lost while all messages wait for other ranks.
    if (const StatusOr<bool> idle = resources_->to_host.Idle(); !idle.ok()) Fail(idle.status());
    bool acted = false;
    for (const auto& message : first) acted = Step(*message) || acted;
    first.clear();
    const TimePoint now = Clock::now();
    if (acted) last_acted = now;
    if (acted) continue;
    std::unique_lock lock(shared_->mu);
    shared_->changed.wait_for(lock, now - last_acted < kBusyTime ? kLookPeriod : kIdleLookPeriod,
                              [&] { return num_started_ != num_seen; });
  }
}

StagingView DeviceMessages::Look(DeviceMessage& message) {
  StagingView view{.sends = message.sends(),
                   .num_bytes = message.call.num_bytes,
                   .piece_bytes = message.window.size() / 2,
                   .num_copied = message.num_copied,
                   .copying = message.copying,
                   .gave_up = message.gave_up};
  if (!message.stream_reached) {
    const StatusOr<bool> reached = message.events().before.Happened();
    message.stream_reached = reached.ok() && *reached;
    if (!reached.ok()) Fail(reached.status());
  }
  if (message.copying) {
    const CudaStream& stream = view.sends ? resources_->to_host : resources_->to_device;
    const StatusOr<bool> finished = message.recorded ? message.events().after.Happened() : stream.Idle();
    view.copy_finished = finished.ok() && *finished;
    if (!finished.ok()) Fail(finished.status());
  }
  view.stream_reached = message.stream_reached;
  // Read before what it has moved, which does not change afterwards.
  view.host_finished = message.host->Done();
  if (view.host_finished) view.host_result = message.host->Wait(TimePoint());
  view.num_moved = message.host->num_moved();
  view.fabric_error = host_->status();
  view.fabric_ended = !view.fabric_error.ok();
  if (view.fabric_ended && !ended_since_) ended_since_ = Clock::now();
  view.ended_since = ended_since_.value_or(TimePoint());
  view.device_error = device_error_;
  view.device_lost = context_->lost();
  const std::lock_guard lock(shared_->mu);
  for (const auto& later : queues_.at(QueueOf(message.call)))
    view.deadline = std::min(view.deadline, later->view.deadline);
  return view;
}

bool DeviceMessages::Step(DeviceMessage& message) {
  if (!message.begun) {
    message.begun = true;
    message.window = windows_.Take(QueueOf(message.call), message.call.num_bytes);
    const StagingView view = Look(message);
    if (!view.sends) message.host->SetReady(message.window, NumReady(view));
  }
  StagingView view = Look(message);
  const StagingAction action = DecideStaging(view, Clock::now());
  switch (action.kind) {
    case Kind::kNone:
      return false;
    case Kind::kCount:
      message.copying = false;
      message.num_copied = view.num_copied = EndOfPiece(view);
      message.host->SetReady(message.window, NumReady(view));
      return true;
    case Kind::kCopy:
      if (const Status copied = Copy(message, view); !copied.ok()) {
        Fail(WithContext(copied, message.host->name()));
      } else if (EndOfPiece(view) == view.num_bytes) {
        message.SetInFlight();
      }
      return true;
    case Kind::kFinish:
      Finish(message, action.status);
      return true;
    case Kind::kGiveUp:
      message.gave_up = true;
      message.host->GiveUp();
      return true;
    case Kind::kGiveUpStream:
      message.gave_up = true;
      host_->End(DeadlineExceededError(StrCat(host_->Name(), " gave up ", message.host->name(),
                                              ", waiting for the work in the stream before it")));
      return true;
    case Kind::kEndFabric:
      host_->End(action.status);
      return true;
  }
  return false;
}

Status DeviceMessages::Copy(DeviceMessage& message, const StagingView& view) {
  const uint64_t begin = view.num_copied, num_bytes = EndOfPiece(view) - begin;
  char* const window = &message.window[begin % message.window.size()];
  message.copying = true;
  message.recorded = false;
  const CUstream stream = (view.sends ? resources_->to_host : resources_->to_device).get();
  DDPRUN_RETURN_IF_ERROR(view.sends
                             ? CopyToHost(*context_, window, static_cast<const char*>(message.in) + begin,
                                          static_cast<int64_t>(num_bytes), stream)
                             : CopyToDevice(*context_, static_cast<char*>(message.out) + begin, window,
                                            static_cast<int64_t>(num_bytes), stream));
  DDPRUN_RETURN_IF_ERROR(message.events().after.Record(stream));
  message.recorded = true;
  return OkStatus();
}

void DeviceMessages::Finish(DeviceMessage& message, const Status& status) {
  std::shared_ptr<DeviceMessage> kept;
  {
    const std::lock_guard lock(shared_->mu);
    const auto queue = queues_.find(QueueOf(message.call));
    kept = std::move(queue->second.front());
    queue->second.pop_front();
    if (queue->second.empty()) queues_.erase(queue);
  }
  // A copy that has not finished keeps its window.
  if (!message.copying) windows_.Release(message.window);
  message.Finish(status);
}

void DeviceMessages::Fail(const Status& why) {
  if (device_error_.ok()) device_error_ = WithContext(why, StrCat(host_->Name(), " gave up"));
}

}  // namespace ddprun
