#include "worker_sdk/param/broadcast.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <utility>

#include "worker_sdk/core/deadline.h"
#include "worker_sdk/device/array_ops.h"

namespace ddprun {
namespace {

// A tensor of at least this size is sent from and to its own memory, in messages of at most kLargestBytes; smaller ones
// share a message of at most kSharedBytes.
constexpr int64_t kLargeBytes = 1 << 20;
constexpr int64_t kLargestBytes = 16 << 20;
constexpr int64_t kSharedBytes = 4 << 20;
// Large messages in flight.
constexpr size_t kMaxInFlight = 8;
// For copies on a GPU, which nothing but a lost device delays.
constexpr Duration kCopyLimit = std::chrono::seconds(10);

int64_t BytesOf(const Tensor& tensor) { return tensor.count * SizeOf(tensor.dtype); }

// Broadcasts tensors that are on one device, in the order of the calls.
class Broadcaster {
 public:
  Broadcaster(Communicator comm, int root, bool keep, ArrayOps& ops)
      : comm_(std::move(comm)), root_(root), keep_(keep), ops_(ops), stream_(ops.stream()) {}

  // Sends or receives the tensors that are on the device.
  Status Send(const std::vector<Tensor>& tensors) {
    for (const Tensor& tensor : tensors) {
      if (tensor.device == ops_.device()) DDPRUN_RETURN_IF_ERROR(Add(tensor));
    }
    DDPRUN_RETURN_IF_ERROR(SendShared());
    DDPRUN_RETURN_IF_ERROR(WaitUntil(0));
    return ops_.Await(stream_, DeadlineAfter(kCopyLimit), "copying what was received");
  }
  // Waits until no message uses memory, also after an error.
  void AwaitEnd() {
    for (Work& work : in_flight_) (void)work.Wait();
  }

 private:
  [[nodiscard]] Tensor Part(int64_t offset, int64_t num_bytes) const {
    return {static_cast<char*>(shared_.get()) + offset, num_bytes, DType::kUInt8, ops_.device()};
  }

  Status Add(const Tensor& tensor) {
    const Tensor bytes{tensor.data, BytesOf(tensor), DType::kUInt8, tensor.device};
    if (bytes.count == 0) return OkStatus();
    if (bytes.count >= kLargeBytes) return SendLarge(bytes);
    if (!shared_) {
      DDPRUN_ASSIGN_OR_RETURN(shared_, ops_.Allocate(kSharedBytes));
    }
    if (filled_ + bytes.count > kSharedBytes) DDPRUN_RETURN_IF_ERROR(SendShared());
    if (comm_.rank() == root_) DDPRUN_RETURN_IF_ERROR(ops_.Copy(stream_, bytes, Part(filled_, bytes.count)));
    filled_ += bytes.count;
    parts_.push_back(bytes);
    return OkStatus();
  }
  Status SendLarge(const Tensor& bytes) {
    if (!keep_ && !ignored_) {
      DDPRUN_ASSIGN_OR_RETURN(ignored_, ops_.Allocate(kLargestBytes));
    }
    for (int64_t sent = 0; sent < bytes.count; sent += kLargestBytes) {
      Tensor message = bytes;
      message.data = keep_ ? static_cast<char*>(bytes.data) + sent : ignored_.get();
      message.count = std::min(kLargestBytes, bytes.count - sent);
      in_flight_.push_back(comm_.Broadcast(message, root_, {.stream = stream_}));
      DDPRUN_RETURN_IF_ERROR(WaitUntil(keep_ ? kMaxInFlight : 0));
    }
    return OkStatus();
  }
  Status SendShared() {
    if (parts_.empty()) return OkStatus();
    DDPRUN_RETURN_IF_ERROR(comm_.Broadcast(Part(0, filled_), root_, {.stream = stream_}).Wait());
    filled_ = 0;
    for (const Tensor& part : parts_) {
      if (keep_ && comm_.rank() != root_)
        DDPRUN_RETURN_IF_ERROR(ops_.Copy(stream_, Part(filled_, part.count), part));
      filled_ += part.count;
    }
    filled_ = 0;
    parts_.clear();
    return OkStatus();
  }
  // Waits until at most `num` large messages are in flight.
  Status WaitUntil(size_t num) {
    for (; in_flight_.size() > num; in_flight_.pop_front()) {
      DDPRUN_RETURN_IF_ERROR(in_flight_.front().Wait());
    }
    return OkStatus();
  }

  Communicator comm_;
  const int root_;
  const bool keep_;
  ArrayOps& ops_;
  const Stream stream_;
  std::shared_ptr<void> shared_;   // the memory of a message of small tensors
  std::shared_ptr<void> ignored_;  // the memory of a large message that this rank does not keep
  int64_t filled_ = 0;             // bytes of `shared_`
  std::vector<Tensor> parts_;      // whose bytes are in `shared_`
  std::deque<Work> in_flight_;
};

Status BroadcastOn(Communicator comm, const Device& device, const std::vector<Tensor>& tensors, int root,
                   bool keep) {
  const StatusOr<std::unique_ptr<ArrayOps>> ops = ArrayOps::Open(device);
  if (!ops.ok()) {
    comm.Abort(ops.status().message());  // other ranks may wait for this one
    return ops.status();
  }
  Broadcaster broadcaster(comm, root, keep, **ops);
  const Status sent = broadcaster.Send(tensors);
  if (!sent.ok()) comm.Abort(sent.message());
  broadcaster.AwaitEnd();
  return sent;
}

}  // namespace

Status BroadcastTensors(Communicator comm, const std::vector<Tensor>& tensors, int root, bool keep) {
  for (const Device& device : {Device{}, comm.device()}) {
    const bool used = std::ranges::any_of(tensors, [&](const Tensor& t) { return t.device == device; });
    if (used) DDPRUN_RETURN_IF_ERROR(BroadcastOn(comm, device, tensors, root, keep));
    if (comm.device() == Device{}) break;
  }
  return OkStatus();
}

}  // namespace ddprun
