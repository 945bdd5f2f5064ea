#include "worker_sdk/ddp/testing/model.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "worker_sdk/core/strings.h"
#include "worker_sdk/device/host/gradients.h"

namespace ddprun {
namespace {

class FinishedOperation : public internal::Operation {
 public:
  FinishedOperation(Status status, std::optional<TimePoint> end)
      : Operation(std::chrono::seconds(1)), status_(std::move(status)), end_(end) {}
  Status Wait(TimePoint) override { return status_; }
  bool Done() override { return true; }
  std::optional<TimePoint> ended() const override { return end_; }

 private:
  const Status status_;
  const std::optional<TimePoint> end_;
};

}  // namespace

void FakeModel::Add(int64_t count, DType dtype, bool owns_gradient) {
  const auto allocate = [&]() -> Tensor {
    memory_.emplace_back(count + 1, 0.0);
    return {memory_.back().data(), count, dtype};
  };
  parameters_.push_back({.name = StrCat("p", parameters_.size()),
                         .shape = {count},
                         .value = allocate(),
                         .gradient = owns_gradient ? allocate() : Tensor{}});
}

std::vector<float> FakeModel::Values(size_t i) const {
  const Tensor& value = parameters_[i].value;
  const auto* begin = static_cast<const float*>(value.data);
  return {begin, begin + value.count};
}

double WholeAt(int rank, size_t parameter, int64_t step, int64_t element) {
  return static_cast<double>((static_cast<int64_t>(parameter) + 3 * step + element) % 7 + 2 * rank);
}

void FillWhole(const Tensor& tensor, int rank, size_t parameter, int64_t step) {
  for (int64_t e = 0; e < tensor.count; ++e) SetElement(tensor, e, WholeAt(rank, parameter, step, e));
}

void FillRandom(const Tensor& tensor, int rank, size_t parameter, int64_t step) {
  std::mt19937 random(static_cast<unsigned>(rank + 100 * parameter + 100000 * step));
  for (int64_t e = 0; e < tensor.count; ++e) {
    const double size = std::ldexp(1.0, static_cast<int>(random() % 8) - 8);
    SetElement(tensor, e, (static_cast<double>(random()) / 2147483648.0 - 1) * size);
  }
}

std::vector<double> Elements(const ConstTensor& tensor) {
  std::vector<double> elements;
  for (int64_t e = 0; e < tensor.count; ++e) elements.push_back(ElementAt(tensor, e));
  return elements;
}

std::string Bytes(const ConstTensor& tensor) {
  return {static_cast<const char*>(tensor.data), static_cast<size_t>(tensor.count * SizeOf(tensor.dtype))};
}

Status StepInOrder(DataParallel& dp, int rank, int64_t step, Fill fill, const std::vector<size_t>& order,
                   const FinishOptions& options) {
  dp.Begin();
  for (const size_t i : order) {
    fill(dp.gradient(i), rank, i, step);
    dp.Ready(i);
  }
  return dp.Finish(options);
}

std::vector<size_t> Backwards(const DataParallel& dp) {
  std::vector<size_t> order(dp.parameters().size());
  std::iota(order.rbegin(), order.rend(), 0);
  return order;
}

std::shared_ptr<internal::Operation> CountingGroup::Start(const internal::Call& call, const void* in,
                                                          void* out) {
  calls.push_back(call);
  if (call.kind == internal::OpKind::kAllGather) {
    for (int r = 0; r < size_; ++r)
      std::memcpy(static_cast<char*>(out) + r * call.num_bytes, in, call.num_bytes);
  }
  return std::make_shared<FinishedOperation>(OkStatus(), end);
}

StatusOr<std::shared_ptr<void>> CountingGroup::Allocate(DType dtype, int64_t count) {
  const auto memory = std::make_shared<std::vector<double>>(count * SizeOf(dtype) / sizeof(double) + 1);
  return std::shared_ptr<void>(memory, memory->data());
}

std::shared_ptr<internal::Operation> CountingGroup::Refuse(const internal::Call&, const Status& why) {
  return std::make_shared<FinishedOperation>(why, std::nullopt);
}

}  // namespace ddprun
