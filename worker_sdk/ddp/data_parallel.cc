#include "ddprun/data_parallel.h"

#include <algorithm>
#include <string>
#include <utility>

#include "worker_sdk/core/deadline.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/ddp/data_parallel_step.h"
#include "worker_sdk/param/facts.h"
#include "worker_sdk/param/parameters.h"

namespace ddprun {
namespace {

// What is wrong with the options; empty if nothing is.
std::string FaultOf(const DataParallelOptions& o) {
  if (o.op != ReduceOp::kMean && o.op != ReduceOp::kSum) {
    return StrCat("op is ", NameOf(o.op), ": it must be mean or sum");
  }
  if (o.bucket_bytes < 0) return StrCat("bucket_bytes is ", o.bucket_bytes);
  if (o.first_bucket_bytes < 0) return StrCat("first_bucket_bytes is ", o.first_bucket_bytes);
  if (o.first_bucket_bytes > 0 && o.bucket_bytes == 0) {
    return "first_bucket_bytes needs bucket_bytes: without it, buckets are planned";
  }
  if (o.compression > Compression::kBFloat16) {
    return StrCat("compression is ", static_cast<int>(o.compression));
  }
  if (o.error_feedback && o.compression == Compression::kNone) return "error_feedback needs compression";
  if (o.timeout <= Duration::zero()) return StrCat("timeout is ", o.timeout.count(), " ns");
  return "";
}

// What a GPU does not have; empty if the parameters are on the host.
std::string FaultOnGpu(const std::vector<Parameter>& parameters, const DataParallelOptions& o) {
  if (parameters[0].value.device.type == DeviceType::kHost || o.compression == Compression::kNone) return "";
  const auto wide =
      std::ranges::find(parameters, DType::kFloat64, [](const Parameter& p) { return p.value.dtype; });
  if (wide == parameters.end()) return "";
  return StrCat("parameter ", wide->name, " is float64, which cannot be compressed on a GPU");
}

std::vector<Fact> FactsOf(const DataParallelOptions& o) {
  return {{"DataParallelOptions::op", NameOf(o.op)},
          {"DataParallelOptions::bucket_bytes", StrCat(o.bucket_bytes)},
          {"DataParallelOptions::first_bucket_bytes", StrCat(o.first_bucket_bytes)},
          {"DataParallelOptions::compression", StrCat(static_cast<int>(o.compression))},
          {"DataParallelOptions::error_feedback", o.error_feedback ? "true" : "false"},
          {"DataParallelOptions::unused_parameters", o.unused_parameters ? "true" : "false"},
          {"DataParallelOptions::atomic_steps", o.atomic_steps ? "true" : "false"}};
}

}  // namespace

StatusOr<DataParallel> DataParallel::Create(Communicator comm, std::vector<Parameter> parameters,
                                            const DataParallelOptions& options) {
  std::string fault = FaultOf(options);
  if (fault.empty()) fault = FaultOf(parameters, comm.device());
  if (fault.empty()) fault = FaultOfDevices(parameters);
  if (fault.empty()) fault = FaultOnGpu(parameters, options);
  std::vector<Fact> facts = FactsOf(options);
  AppendFacts(parameters, &facts);
  const Duration timeout =
      options.timeout > Duration::zero() ? options.timeout : DataParallelOptions().timeout;
  DDPRUN_RETURN_IF_ERROR(CompareFacts(comm, facts, fault, DeadlineAfter(timeout)), "creating DataParallel");
  auto step = std::make_unique<internal::DataParallelStep>(comm, std::move(parameters), options);
  if (Status allocated = step->Allocate(); !allocated.ok()) {
    comm.Abort(allocated.message());  // the other ranks would wait in the first step
    return allocated;
  }
  return DataParallel(std::move(step));
}

DataParallel::DataParallel(std::unique_ptr<internal::DataParallelStep> step) : impl_(std::move(step)) {}
DataParallel::~DataParallel() = default;
DataParallel::DataParallel(DataParallel&&) noexcept = default;
DataParallel& DataParallel::operator=(DataParallel&&) noexcept = default;

const std::vector<Parameter>& DataParallel::parameters() const { return impl_->parameters(); }
Tensor DataParallel::gradient(size_t i) const { return impl_->gradient(i); }
void DataParallel::Begin() { impl_->Begin(); }
void DataParallel::ZeroGradients(const Stream& stream) { impl_->ZeroGradients(stream); }
void DataParallel::Ready(size_t i, const Stream& stream) { impl_->Ready(i, stream); }
Status DataParallel::Finish(const FinishOptions& options) { return impl_->Finish(options); }
Status DataParallel::Wait() { return impl_->Wait(); }
double DataParallel::norm() const { return impl_->norm(); }
const std::vector<size_t>& DataParallel::unused() const { return impl_->unused(); }
const std::vector<DataParallel::BucketTiming>& DataParallel::timings() const { return impl_->timings(); }

}  // namespace ddprun
