#include "worker_sdk/optim/optimizer_state.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace ddprun {
namespace {

// The optimizer that a tensor of a snapshot belongs to (StateTensorName); empty for one of the model.
absl::string_view OptimizerOf(absl::string_view tensor) {
  return tensor.find('/') == tensor.npos ? "" : tensor.substr(0, tensor.find('.'));
}

absl::Status Mismatch(absl::string_view what, absl::string_view tensor, absl::string_view optimizer,
                      const std::set<std::string>& writers) {
  const std::string written = writers.empty()
                                  ? "without optimizer state"
                                  : absl::StrCat("with optimizer ", absl::StrJoin(writers, " and "));
  return absl::FailedPreconditionError(absl::StrCat(
      "it ", what, " tensor ", tensor, " of optimizer ", optimizer, ": it was written ", written,
      "; continue with that optimizer and its options, or start from step 0 without this snapshot"));
}

}  // namespace

void AddOptimizerState(Optimizer& optimizer, Snapshot* snapshot) {
  for (StateTensor& tensor : optimizer.state()) {
    snapshot->tensors.push_back(ViewOf(std::move(tensor.name), std::move(tensor.shape), tensor.values));
  }
}

absl::Status LoadOptimizerState(const Snapshot& snapshot, Optimizer* optimizer) {
  const std::vector<StateTensor> state = optimizer->state();
  std::set<std::string> expected, writers;
  std::set<absl::string_view> present;
  for (const StateTensor& tensor : state) expected.insert(tensor.name);
  for (const TensorView& tensor : snapshot.tensors) {
    present.insert(tensor.name);
    if (const absl::string_view writer = OptimizerOf(tensor.name); !writer.empty()) writers.emplace(writer);
  }
  for (const StateTensor& tensor : state) {
    if (!present.contains(tensor.name)) return Mismatch("lacks", tensor.name, optimizer->name(), writers);
  }
  for (const TensorView& tensor : snapshot.tensors) {
    const absl::string_view writer = OptimizerOf(tensor.name);
    if (writer.empty() || expected.contains(tensor.name)) continue;
    return Mismatch(absl::StrCat("has state that optimizer ", optimizer->name(), " does not take,"),
                    tensor.name, writer, writers);
  }
  for (const StateTensor& tensor : state) {
    RETURN_IF_ERROR(snapshot.Copy(tensor.name, tensor.values));
  }
  return absl::OkStatus();
}

}  // namespace ddprun
