#include "worker_sdk/param/parameters.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string_view>
#include <utility>

#include "worker_sdk/comm/device_text.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/param/broadcast.h"

namespace ddprun {
namespace {

constexpr int64_t kMaxElems = int64_t{1} << 56;

int64_t BytesOf(const Tensor& tensor) { return tensor.count * SizeOf(tensor.dtype); }

// The number of elements; -1 if a dimension is negative or the number is too large.
int64_t CountOf(const std::vector<int64_t>& shape) {
  if (std::ranges::any_of(shape, [](int64_t dim) { return dim < 0; })) return -1;
  if (std::ranges::find(shape, 0) != shape.end()) return 0;  // whatever the product of the others
  int64_t count = 1;
  for (const int64_t dim : shape) {
    if (dim > kMaxElems / count) return -1;
    count *= dim;
  }
  return count;
}

// What is wrong with memory for `count` elements; empty if nothing is.
std::string FaultOfMemory(std::string_view what, const Tensor& tensor, int64_t count, const Device& gpu) {
  if (tensor.count != count)
    return StrCat("its ", what, " has ", tensor.count, " elements instead of ", count);
  if (const std::string fault = FaultOfPlace(tensor.device, gpu); !fault.empty())
    return StrCat("its ", what, " is ", fault);
  if (tensor.data == nullptr && count > 0) return StrCat("its ", what, " is a null pointer");
  if (reinterpret_cast<uintptr_t>(tensor.data) % SizeOf(tensor.dtype) != 0) {
    return StrCat("its ", what, " is not aligned to the ", SizeOf(tensor.dtype), " bytes of a ",
                  NameOf(tensor.dtype));
  }
  return "";
}

std::string FaultOf(const Parameter& p, const Device& gpu) {
  if (!IsFloatingPoint(p.value.dtype)) {
    return StrCat("its dtype ", NameOf(p.value.dtype), " is not a floating-point type");
  }
  const int64_t count = CountOf(p.shape);
  if (count < 0) return StrCat("its shape ", ShapeText(p.shape), " is invalid");
  if (std::string fault = FaultOfMemory("value", p.value, count, gpu); !fault.empty()) return fault;
  if (p.gradient.data == nullptr) return "";
  if (p.gradient.dtype != p.value.dtype) {
    return StrCat("its value is ", NameOf(p.value.dtype), ", its gradient ", NameOf(p.gradient.dtype));
  }
  if (p.gradient.device != p.value.device) {
    return StrCat("its value is ", Describe(p.value.device), ", its gradient ", Describe(p.gradient.device));
  }
  return FaultOfMemory("gradient", p.gradient, count, gpu);
}

// The first two values or gradients, in the order of addresses, that share memory; empty if there are none.
std::string FaultOfSharing(const std::vector<Parameter>& parameters) {
  struct Range {
    uintptr_t begin, end;
    std::string_view what;
    const std::string* name;
  };
  std::vector<Range> ranges;
  const auto add = [&](const Tensor& tensor, std::string_view what, const std::string& name) {
    if (tensor.data == nullptr || tensor.count == 0) return;
    const auto begin = reinterpret_cast<uintptr_t>(tensor.data);
    ranges.push_back({begin, begin + BytesOf(tensor), what, &name});
  };
  for (const Parameter& p : parameters) {
    add(p.value, "value", p.name);
    add(p.gradient, "gradient", p.name);
  }
  std::ranges::stable_sort(ranges, {}, &Range::begin);
  const auto shared =
      std::ranges::adjacent_find(ranges, [](const Range& a, const Range& b) { return b.begin < a.end; });
  if (shared == ranges.end()) return "";
  const Range &a = shared[0], &b = shared[1];
  return StrCat("the ", a.what, " of parameter ", *a.name, " and the ", b.what, " of parameter ", *b.name,
                " share memory");
}

}  // namespace

bool IsFloatingPoint(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 ||
         dtype == DType::kBFloat16;
}

std::string ShapeText(const std::vector<int64_t>& shape) { return StrCat("[", StrJoin(shape, ", "), "]"); }

std::string FaultOfPlace(const Device& device, const Device& gpu) {
  if (device.type == DeviceType::kHost || device == gpu) return "";
  return StrCat(Describe(device), " instead of ", Describe(gpu));
}

std::string DeviceFact(const Device& device) {
  return device.type == DeviceType::kHost ? "the host" : "a GPU";
}

std::string FaultOf(const std::vector<Parameter>& parameters, const Device& gpu) {
  if (parameters.empty()) return "the model has no parameters";
  std::set<std::string_view> names;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& p = parameters[i];
    if (p.name.empty()) return StrCat("parameter ", i, " has no name");
    if (p.name.find('/') != p.name.npos) return StrCat("parameter ", p.name, ": its name contains '/'");
    if (!names.insert(p.name).second) return StrCat("two parameters have the name ", p.name);
    if (const std::string fault = FaultOf(p, gpu); !fault.empty())
      return StrCat("parameter ", p.name, ": ", fault);
  }
  return FaultOfSharing(parameters);
}

std::string FaultOfDevices(const std::vector<Parameter>& parameters) {
  const auto other = std::ranges::adjacent_find(parameters, std::ranges::not_equal_to(),
                                                [](const Parameter& p) { return p.value.device; });
  if (other == parameters.end()) return "";
  return StrCat("parameter ", other[0].name, " is ", Describe(other[0].value.device), ", parameter ",
                other[1].name, " ", Describe(other[1].value.device));
}

void AppendFacts(const std::vector<Parameter>& parameters, std::vector<Fact>* facts) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& p = parameters[i];
    facts->push_back({StrCat("parameter ", i), p.name});
    facts->push_back({StrCat("the shape of parameter ", p.name), ShapeText(p.shape)});
    facts->push_back({StrCat("the dtype of parameter ", p.name), NameOf(p.value.dtype)});
    facts->push_back({StrCat("the device of parameter ", p.name), DeviceFact(p.value.device)});
    facts->push_back({StrCat("whether parameter ", p.name, " decays"), p.decays ? "true" : "false"});
  }
}

Status CompareParameters(Communicator comm, const std::vector<Parameter>& parameters) {
  std::vector<Fact> facts;
  AppendFacts(parameters, &facts);
  return CompareFacts(comm, facts, FaultOf(parameters, comm.device()));
}

Status BroadcastParameters(Communicator comm, const std::vector<Parameter>& parameters, int root) {
  std::string fault = FaultOf(parameters, comm.device());
  if (root < 0 || root >= comm.size()) {
    fault = StrCat("rank ", root, " of ", comm.size(), " cannot be the root");
  }
  std::vector<Fact> facts = {{"the root", StrCat(root)}};
  AppendFacts(parameters, &facts);
  DDPRUN_RETURN_IF_ERROR(CompareFacts(comm, facts, fault), "broadcasting parameters");
  std::vector<Tensor> values;
  for (const Parameter& p : parameters) values.push_back(p.value);
  return WithContext(BroadcastTensors(std::move(comm), values, root), "broadcasting parameters");
}

}  // namespace ddprun
