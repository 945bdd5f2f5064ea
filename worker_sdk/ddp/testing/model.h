// A model for tests, with gradients that depend on the rank and the step; and a communicator that counts.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ddprun/data_parallel.h"
#include "ddprun/parameters.h"
#include "worker_sdk/comm/group.h"

namespace ddprun {

// Parameters with names p0, p1, ... and the memory of their values, and of their gradients if they own it.
class FakeModel {
 public:
  // `owns_gradient`: whether the gradient has memory of its own.
  void Add(int64_t count, DType dtype = DType::kFloat32, bool owns_gradient = false);
  const std::vector<Parameter>& parameters() const { return parameters_; }
  std::vector<float> Values(size_t i) const;  // of a float32 parameter

 private:
  std::deque<std::vector<double>> memory_;  // aligned for all types
  std::vector<Parameter> parameters_;
};

// Sets all elements to small whole numbers, which all types represent exactly, as do their sums over a few ranks; or, to
// numbers whose sums need rounding. They depend on the arguments only.
void FillWhole(const Tensor& tensor, int rank, size_t parameter, int64_t step);
void FillRandom(const Tensor& tensor, int rank, size_t parameter, int64_t step);
// The element that FillWhole writes.
double WholeAt(int rank, size_t parameter, int64_t step, int64_t element);

std::vector<double> Elements(const ConstTensor& tensor);
std::string Bytes(const ConstTensor& tensor);

// One step in which the gradients become ready in `order`, filled with `fill`: FillWhole or FillRandom.
using Fill = void (*)(const Tensor&, int rank, size_t parameter, int64_t step);
Status StepInOrder(DataParallel& dp, int rank, int64_t step, Fill fill, const std::vector<size_t>& order,
                   const FinishOptions& options = {});
// From the last parameter to the first.
std::vector<size_t> Backwards(const DataParallel& dp);

// Rank 0 of `size` ranks whose inputs are all equal. Operations finish at once, and are recorded.
class CountingGroup : public internal::Group {
 public:
  explicit CountingGroup(int size) : size_(size) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  Status status() const override { return OkStatus(); }
  std::shared_ptr<internal::Operation> Start(const internal::Call& call, const void* in, void* out) override;
  std::shared_ptr<internal::Operation> Refuse(const internal::Call& call, const Status& why) override;
  void Abort(std::string_view reason) override { aborts.emplace_back(reason); }
  StatusOr<std::shared_ptr<void>> Allocate(DType dtype, int64_t count) override;
  StatusOr<std::shared_ptr<internal::Group>> Split(int, int) override { return UnimplementedError("split"); }

  std::vector<internal::Call> calls;
  std::vector<std::string> aborts;
  std::optional<TimePoint> end;  // what operations report as their end

 private:
  const int size_;
};

}  // namespace ddprun
