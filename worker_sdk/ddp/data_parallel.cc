#include "worker_sdk/ddp/data_parallel.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include "base/check.h"
#include "ddprun/status.h"
#include "worker_sdk/ddp/buckets.h"

namespace ddprun {
namespace {

template <typename T>
std::vector<Bucket> Plan(const std::vector<std::span<T>>& grads, const DataParallelOptions& options) {
  std::vector<size_t> num_elems;
  num_elems.reserve(grads.size());
  for (const auto& grad : grads) num_elems.push_back(grad.size());
  return PlanBuckets(num_elems, options.first_bucket_bytes / sizeof(T), options.bucket_bytes / sizeof(T));
}

}  // namespace

template <typename T>
struct DataParallel<T>::Impl {
  Impl(Communicator world, std::vector<std::span<T>> grads, DataParallelOptions options)
      : comm(std::move(world)),
        grads(std::move(grads)),
        options(options),
        buckets(Plan(this->grads, options)),
        scheduler(buckets) {
    for (const Bucket& bucket : buckets) flat.emplace_back(bucket.num_elems);
  }

  // Calls f(gradient, pointer to its elements in the flat buffer) for each gradient in `bucket`.
  template <typename F>
  void ForEachGrad(size_t bucket, F f) {
    T* place = flat[bucket].data();
    for (size_t i = buckets[bucket].first; i < buckets[bucket].first + buckets[bucket].count; ++i) {
      f(grads[i], place);
      place += grads[i].size();
    }
  }

  void Launch(size_t bucket) {
    ForEachGrad(bucket, [](std::span<T> grad, T* place) { std::copy(grad.begin(), grad.end(), place); });
    pending.push_back(comm.AllReduce(View(flat[bucket]), options.op));
  }

  Communicator comm;
  const std::vector<std::span<T>> grads;
  const DataParallelOptions options;
  const std::vector<Bucket> buckets;
  BucketScheduler scheduler;
  std::vector<std::vector<T>> flat;  // by bucket
  std::vector<Work> pending;         // by bucket, for the buckets launched in this step
};

template <typename T>
DataParallel<T>::DataParallel(Communicator comm, std::vector<std::span<T>> grads_in_ready_order,
                              DataParallelOptions options)
    : impl_(std::make_unique<Impl>(std::move(comm), std::move(grads_in_ready_order), options)) {}

template <typename T>
DataParallel<T>::~DataParallel() {
  // If a step is in progress, the communicator may still use the buckets' memory, so the memory must not be
  // freed before the operations end.
  if (impl_->pending.empty()) return;
  impl_->comm.Abort("a data-parallel step was not finished");
  for (auto& pending : impl_->pending) (void)pending.Wait(std::chrono::steady_clock::now());
}

template <typename T>
void DataParallel<T>::Begin() {
  DDPRUN_CHECK(impl_->pending.empty(), "Begin() before Finish() of the previous step");
  (void)impl_->scheduler.Step(StepBegan{});
}

template <typename T>
void DataParallel<T>::GradReady(size_t index) {
  for (size_t bucket : impl_->scheduler.Step(GradBecameReady{index}).buckets) impl_->Launch(bucket);
}

template <typename T>
Status DataParallel<T>::Finish() {
  DDPRUN_CHECK(impl_->scheduler.done(), "Finish() before every gradient was ready");
  const TimePoint deadline = std::chrono::steady_clock::now() + impl_->options.timeout;
  Status result;
  for (size_t b = 0; b < impl_->pending.size(); ++b) {
    // After an error, the communicator is dead, so the waits for the remaining buckets fail immediately.
    result.Update(impl_->pending[b].Wait(deadline));
    if (!result.ok()) continue;
    impl_->ForEachGrad(b, [](std::span<T> grad, T* place) { std::copy_n(place, grad.size(), grad.begin()); });
  }
  impl_->pending.clear();
  return WithContext(result, "reducing gradients");
}

template class DataParallel<float>;
template class DataParallel<double>;

}  // namespace ddprun
