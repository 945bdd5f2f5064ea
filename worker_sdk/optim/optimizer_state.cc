#include "worker_sdk/optim/optimizer_state.h"

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ddprun/status.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

// Returns the name of the optimizer to whose state `tensor` belongs; empty if `tensor` belongs to the
// program. `tensor` is optimizer state if it is the name of a StateTensor whose parameter is in `names`.
//   names: names of all tensors in the snapshot.
std::string_view OptimizerOf(std::string_view tensor, const std::set<std::string_view>& names) {
  const size_t slash = tensor.find('/');
  if (slash == tensor.npos || !names.contains(tensor.substr(slash + 1))) return "";
  if (tensor.find('/', slash + 1) != tensor.npos) return "";
  const std::string_view kind = tensor.substr(0, slash);
  const size_t dot = kind.find('.');
  if (dot == kind.npos || dot + 1 == kind.size()) return "";
  return kind.substr(0, dot);
}

Status Mismatch(std::string_view what, std::string_view tensor, std::string_view optimizer,
                const std::set<std::string>& writers) {
  const std::string written =
      writers.empty() ? "without optimizer state" : StrCat("with optimizer ", StrJoin(writers, " and "));
  return FailedPreconditionError(
      StrCat("it ", what, " tensor ", tensor, " of optimizer ", optimizer, ": it was written ", written,
             "; continue with that optimizer and its options, or start from step 0 without this snapshot"));
}

Status Copy(const Snapshot& snapshot, const StateTensor& tensor) {
  const auto count = static_cast<size_t>(tensor.values.count);
  switch (tensor.values.dtype) {
    case DType::kFloat32:
      return snapshot.Copy(tensor.name, std::span(static_cast<float*>(tensor.values.data), count));
    case DType::kFloat64:
      return snapshot.Copy(tensor.name, std::span(static_cast<double*>(tensor.values.data), count));
    default:
      return UnimplementedError(
          StrCat("loading tensor ", tensor.name, " of type ", NameOf(tensor.values.dtype)));
  }
}

}  // namespace

void AddOptimizerState(Optimizer& optimizer, Snapshot* snapshot) { AddState(optimizer.state(), snapshot); }

void AddState(std::vector<StateTensor> state, Snapshot* snapshot) {
  for (StateTensor& tensor : state) {
    const Tensor& values = tensor.values;
    const auto size = static_cast<size_t>(values.count * SizeOf(values.dtype));
    snapshot->tensors.push_back({.name = std::move(tensor.name),
                                 .dtype = values.dtype,
                                 .shape = std::move(tensor.shape),
                                 .bytes = {static_cast<const char*>(values.data), size}});
  }
}

Status LoadOptimizerState(const Snapshot& snapshot, Optimizer* optimizer) {
  return LoadState(snapshot, optimizer->name(), optimizer->state());
}

Status LoadState(const Snapshot& snapshot, std::string_view optimizer,
                 const std::vector<StateTensor>& state) {
  std::set<std::string> expected, writers;
  std::set<std::string_view> present;
  for (const StateTensor& tensor : state) expected.insert(tensor.name);
  for (const TensorView& tensor : snapshot.tensors) present.insert(tensor.name);
  for (const TensorView& tensor : snapshot.tensors) {
    const std::string_view writer = OptimizerOf(tensor.name, present);
    if (!writer.empty()) writers.emplace(writer);
  }
  for (const StateTensor& tensor : state) {
    if (!present.contains(tensor.name)) return Mismatch("lacks", tensor.name, optimizer, writers);
  }
  for (const TensorView& tensor : snapshot.tensors) {
    const std::string_view writer = OptimizerOf(tensor.name, present);
    if (writer.empty() || expected.contains(tensor.name)) continue;
    return Mismatch(StrCat("has state that optimizer ", optimizer, " does not use,"), tensor.name, writer,
                    writers);
  }
  for (const StateTensor& tensor : state) {
    DDPRUN_RETURN_IF_ERROR(Copy(snapshot, tensor));
  }
  return OkStatus();
}

}  // namespace ddprun
