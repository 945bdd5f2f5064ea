#include "ddprun/communicator.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "worker_sdk/comm/device_text.h"
#include "worker_sdk/comm/group.h"
#include "worker_sdk/core/deadline.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using internal::Call;
using internal::OpKind;

// Limits the bytes of one buffer, so that sums of sizes and offsets cannot overflow.
constexpr int64_t kMaxBytes = int64_t{1} << 60;

// What is wrong with a tensor; empty if nothing is. `name`: "input" or "output".
std::string Fault(std::string_view name, const ConstTensor& tensor) {
  const int64_t size = SizeOf(tensor.dtype);
  if (size == 0) return StrCat("the ", name, " has the unknown dtype ", static_cast<int>(tensor.dtype));
  if (tensor.count < 0 || tensor.count > kMaxBytes / size)
    return StrCat("the ", name, " has ", tensor.count, " elements");
  if (tensor.count == 0) return "";
  if (tensor.data == nullptr)
    return StrCat("the ", name, " is a null pointer to ", tensor.count, " elements");
  if (reinterpret_cast<uintptr_t>(tensor.data) % size != 0) {
    return StrCat("the ", name, " is not aligned to the ", size, " bytes of a ", NameOf(tensor.dtype));
  }
  return "";
}

int64_t BytesOf(const ConstTensor& tensor) { return tensor.count * SizeOf(tensor.dtype); }

bool Overlap(const ConstTensor& a, const ConstTensor& b) {
  const auto begin_a = reinterpret_cast<uintptr_t>(a.data), begin_b = reinterpret_cast<uintptr_t>(b.data);
  return begin_a < begin_b + BytesOf(b) && begin_b < begin_a + BytesOf(a);
}

// The ratio of an input's elements to an output's.
struct Ratio {
  int64_t in;
  int64_t out;
};

// What is wrong with the arguments of an operation whose output has in.count * shape.out / shape.in elements; empty
// if nothing is.
std::string FaultOfPair(const ConstTensor& in, const ConstTensor& out, Ratio shape, int rank = 0) {
  if (std::string fault = Fault("input", in); !fault.empty()) return fault;
  if (std::string fault = Fault("output", out); !fault.empty()) return fault;
  if (in.device != out.device)
    return StrCat("the input is ", Describe(in.device), ", the output ", Describe(out.device));
  if (in.dtype != out.dtype)
    return StrCat("the input is ", NameOf(in.dtype), ", the output ", NameOf(out.dtype));
  const bool fits =
      in.count % shape.in == 0 && out.count % shape.out == 0 && in.count / shape.in == out.count / shape.out;
  if (!fits) {
    return StrCat("the input has ", in.count, " elements and the output ", out.count,
                  ": they must be in the ratio ", shape.in, ":", shape.out);
  }
  // In place: the input or the output is this rank's part of the other one, or all of it.
  const auto* from = static_cast<const char*>(in.data);
  const auto* to = static_cast<const char*>(out.data);
  const bool same = (shape.out == 1 && to == from + (shape.in > 1 ? rank * BytesOf(out) : 0)) ||
                    (shape.in == 1 && from == to + (shape.out > 1 ? rank * BytesOf(in) : 0));
  if (!same && Overlap(in, out)) return "the input and the output overlap";
  return "";
}

std::string FaultOfReduction(DType dtype, ReduceOp op) {
  if (op > ReduceOp::kProduct) return StrCat("the unknown reduction ", static_cast<int>(op));
  const bool integer = dtype == DType::kInt32 || dtype == DType::kInt64 || dtype == DType::kUInt8;
  if (op == ReduceOp::kMean && integer) return StrCat("a mean of ", NameOf(dtype), " is not defined");
  return "";
}

// What is wrong with the other rank of a message; empty if nothing is.
std::string FaultOfPeer(const internal::Group& group, int peer) {
  if (peer == group.rank()) return "a rank cannot exchange messages with itself";
  if (peer < 0 || peer >= group.size())
    return StrCat("rank ", peer, " is not in the group of ", group.size());
  return "";
}

Call CallOf(OpKind kind, const ConstTensor& in, ReduceOp op = ReduceOp::kSum, int root = 0) {
  return {.kind = kind,
          .dtype = in.dtype,
          .op = op,
          .root = root,
          .num_bytes = static_cast<uint64_t>(in.count) * SizeOf(in.dtype)};
}

// What is wrong with the place of an operation's memory and with its stream; empty if nothing is.
std::string FaultOfPlace(const internal::Group& group, const Device& memory, const Stream& stream) {
  if (memory.type == DeviceType::kHost) {
    if (stream.device.type == DeviceType::kHost && stream.handle == nullptr) return "";
    return "the memory is on the host, so OpOptions::stream must be empty";
  }
  if (memory != group.device()) {
    const std::string also =
        group.device().type == DeviceType::kHost ? "" : StrCat(" or ", Describe(group.device()));
    return StrCat("the memory is ", Describe(memory), ", but the communicator accepts memory on the host",
                  also, ": see ConnectOptions::device");
  }
  if (stream.device != memory) {
    return StrCat("the memory is ", Describe(memory), ", but OpOptions::stream is ", Describe(stream.device));
  }
  return "";
}

// Starts `call`, or ends `group` if `fault` says that an argument is invalid.
Work Start(const std::shared_ptr<internal::Group>& group, const Call& call, const ConstTensor& in,
           const Tensor& out, const OpOptions& options, std::string fault) {
  const Device& device = call.kind == OpKind::kReceive ? out.device : in.device;
  if (fault.empty()) fault = FaultOfPlace(*group, device, options.stream);
  if (!fault.empty()) {
    return Work(group->Refuse(call, InvalidArgumentError(StrCat(NameOf(call.kind), ": ", fault))));
  }
  if (device.type == DeviceType::kHost) return Work(group->Start(call, in.data, out.data));
  return Work(group->StartOnDevice(call, in.data, out.data, options.stream));
}

}  // namespace

Status internal::Operation::WaitOn(const Stream& /*stream*/) {
  return InvalidArgumentError("WaitOn: the operation's memory is on the host: use Wait");
}

std::shared_ptr<internal::Operation> internal::Group::StartOnDevice(const Call& call, const void* /*in*/,
                                                                    void* /*out*/, const Stream& /*stream*/) {
  return Refuse(call, InternalError("the group has no device"));
}

StatusOr<std::shared_ptr<void>> internal::Group::AllocateOnDevice(DType /*dtype*/, int64_t /*count*/) {
  return InternalError("the group has no device");
}

Work::Work() = default;
Work::Work(std::shared_ptr<internal::Operation> operation) : operation_(std::move(operation)) {}
Work::~Work() = default;
Work::Work(Work&&) noexcept = default;
Work& Work::operator=(Work&&) noexcept = default;

Status Work::Wait() {
  return Wait(operation_ == nullptr ? TimePoint() : DeadlineAfter(operation_->timeout()));
}

Status Work::Wait(TimePoint deadline) {
  if (operation_ == nullptr) {
    return FailedPreconditionError("no operation was started: the communicator is empty");
  }
  return operation_->Wait(deadline);
}

Status Work::WaitOn(const Stream& stream) {
  if (operation_ == nullptr) {
    return FailedPreconditionError("no operation was started: the communicator is empty");
  }
  return operation_->WaitOn(stream);
}

bool Work::Done() { return operation_ == nullptr || operation_->Done(); }

Buffer::Buffer() = default;
Buffer::Buffer(std::shared_ptr<void> memory, Tensor elements)
    : memory_(std::move(memory)), elements_(elements) {}
Buffer::~Buffer() = default;
Buffer::Buffer(Buffer&& other) noexcept
    : memory_(std::move(other.memory_)), elements_(std::exchange(other.elements_, {})) {}
Buffer& Buffer::operator=(Buffer&& other) noexcept {
  memory_ = std::move(other.memory_);
  elements_ = std::exchange(other.elements_, {});
  return *this;
}

Communicator::Communicator() = default;
Communicator::Communicator(std::shared_ptr<internal::Group> group) : group_(std::move(group)) {}
Communicator::~Communicator() = default;
Communicator::Communicator(const Communicator&) = default;
Communicator& Communicator::operator=(const Communicator&) = default;
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;

int Communicator::rank() const { return group_ == nullptr ? -1 : group_->rank(); }
int Communicator::size() const { return group_ == nullptr ? 0 : group_->size(); }
Status Communicator::status() const {
  return group_ == nullptr ? FailedPreconditionError("the communicator is empty") : group_->status();
}

Device Communicator::device() const { return group_ == nullptr ? Device{} : group_->device(); }

Work Communicator::AllReduce(ConstTensor in, Tensor out, ReduceOp op, const OpOptions& options) {
  if (group_ == nullptr) return {};
  std::string fault = FaultOfPair(in, out, {1, 1});
  if (fault.empty()) fault = FaultOfReduction(in.dtype, op);
  return Start(group_, CallOf(OpKind::kAllReduce, in, op), in, out, options, fault);
}

Work Communicator::Reduce(ConstTensor in, Tensor out, ReduceOp op, int root, const OpOptions& options) {
  if (group_ == nullptr) return {};
  std::string fault = rank() == root ? FaultOfPair(in, out, {1, 1}) : Fault("input", in);
  if (fault.empty()) fault = FaultOfReduction(in.dtype, op);
  if (root < 0 || root >= size()) fault = StrCat("rank ", root, " of ", size(), " cannot be the root");
  return Start(group_, CallOf(OpKind::kReduce, in, op, root), in, out, options, fault);
}

Work Communicator::ReduceScatter(ConstTensor in, Tensor out, ReduceOp op, const OpOptions& options) {
  if (group_ == nullptr) return {};
  std::string fault = FaultOfPair(in, out, {size(), 1}, rank());
  if (fault.empty()) fault = FaultOfReduction(in.dtype, op);
  return Start(group_, CallOf(OpKind::kReduceScatter, in, op), in, out, options, fault);
}

Work Communicator::AllGather(ConstTensor in, Tensor out, const OpOptions& options) {
  if (group_ == nullptr) return {};
  return Start(group_, CallOf(OpKind::kAllGather, in), in, out, options,
               FaultOfPair(in, out, {1, size()}, rank()));
}

Work Communicator::AllToAll(ConstTensor in, Tensor out, const OpOptions& options) {
  if (group_ == nullptr) return {};
  std::string fault = FaultOfPair(in, out, {size(), size()});
  return Start(group_, CallOf(OpKind::kAllToAll, in), in, out, options, fault);
}

Work Communicator::Broadcast(Tensor inout, int root, const OpOptions& options) {
  if (group_ == nullptr) return {};
  std::string fault = Fault("tensor", inout);
  if (root < 0 || root >= size()) fault = StrCat("rank ", root, " of ", size(), " cannot be the root");
  return Start(group_, CallOf(OpKind::kBroadcast, inout, ReduceOp::kSum, root), inout, inout, options, fault);
}

Work Communicator::Send(ConstTensor in, int to, const OpOptions& options) {
  if (group_ == nullptr) return {};
  std::string fault = Fault("input", in);
  if (fault.empty()) fault = FaultOfPeer(*group_, to);
  return Start(group_, CallOf(OpKind::kSend, in, ReduceOp::kSum, to), in, {}, options, fault);
}

Work Communicator::Receive(Tensor out, int from, const OpOptions& options) {
  if (group_ == nullptr) return {};
  std::string fault = Fault("output", out);
  if (fault.empty()) fault = FaultOfPeer(*group_, from);
  return Start(group_, CallOf(OpKind::kReceive, out, ReduceOp::kSum, from), {}, out, options, fault);
}

Work Communicator::Barrier() {
  if (group_ == nullptr) return {};
  return Work(group_->Start({.kind = OpKind::kBarrier}, nullptr, nullptr));
}

StatusOr<Buffer> Communicator::Allocate(DType dtype, int64_t count, Device device) {
  if (group_ == nullptr) return FailedPreconditionError("allocate: the communicator is empty");
  const int64_t size = SizeOf(dtype);
  std::string fault;
  if (size == 0) fault = StrCat("the unknown dtype ", static_cast<int>(dtype));
  if (size > 0 && (count < 0 || count > kMaxBytes / size)) fault = StrCat(count, " elements");
  if (device.type != DeviceType::kHost && device != group_->device()) {
    fault =
        StrCat("memory ", Describe(device), ", but the communicator has memory ", Describe(group_->device()));
  }
  if (!fault.empty()) {
    const Call call{.purpose = internal::Purpose::kAllocate};
    return group_->Refuse(call, InvalidArgumentError(StrCat("allocate: ", fault)))->Wait(TimePoint());
  }
  DDPRUN_ASSIGN_OR_RETURN(std::shared_ptr<void> memory, device.type == DeviceType::kHost
                                                            ? group_->Allocate(dtype, count)
                                                            : group_->AllocateOnDevice(dtype, count));
  const Tensor elements{memory.get(), count, dtype, device};
  return Buffer(std::move(memory), elements);
}

StatusOr<Communicator> Communicator::Split(int color, int key) {
  if (group_ == nullptr) return FailedPreconditionError("split: the communicator is empty");
  DDPRUN_ASSIGN_OR_RETURN(std::shared_ptr<internal::Group> group, group_->Split(color, key));
  return Communicator(std::move(group));
}

void Communicator::Abort(std::string_view reason) {
  if (group_ != nullptr) group_->Abort(reason);
}

}  // namespace ddprun
