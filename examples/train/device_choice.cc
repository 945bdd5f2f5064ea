#include "examples/train/device_choice.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "examples/train/gpu/cublas.h"
#include "examples/train/gpu/kernels.h"
#include "worker_sdk/comm/nccl/nccl_group.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/device/cuda/driver.h"

namespace ddprun::train {
namespace {

StatusOr<RankGpu> Find(int local_rank) {
  DDPRUN_ASSIGN_OR_RETURN(const NcclDevice device, OpenNcclDevice({DeviceType::kCuda, -1}, local_rank));
  DDPRUN_RETURN_IF_ERROR(OpenCublas().status());
  if (ModelKernelsImage().empty())
    return FailedPreconditionError("this program was built without a CUDA toolkit");
  const CudaContext& context = *device.context;
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<CudaDevice> devices, ListCudaDevices(context.driver()));
  const CudaDevice& found = devices[context.index()];
  return RankGpu{.uuid = found.uuid,
                 .description = StrCat(found.name, " (GPU ", found.index, " of ", devices.size(), ")")};
}

// Four texts of fixed sizes, padded with NUL bytes. Too long ones are cut.
constexpr size_t kFieldBytes[] = {16, 512, 64, 128};
constexpr size_t kRecordBytes = 16 + 512 + 64 + 128;

std::string Encode(const RankGpu& gpu) {
  std::string record;
  const std::string* const fields[] = {&gpu.flag, &gpu.missing, &gpu.uuid, &gpu.description};
  for (size_t i = 0; i < std::size(fields); ++i) {
    std::string field = fields[i]->substr(0, kFieldBytes[i] - 1);
    field.resize(kFieldBytes[i], '\0');
    record += field;
  }
  return record;
}

RankGpu Decode(std::string_view record) {
  RankGpu gpu;
  std::string* const fields[] = {&gpu.flag, &gpu.missing, &gpu.uuid, &gpu.description};
  for (size_t i = 0; i < std::size(fields); ++i) {
    *fields[i] = std::string(record.substr(0, kFieldBytes[i])).c_str();
    record.remove_prefix(kFieldBytes[i]);
  }
  return gpu;
}

StatusOr<std::vector<RankGpu>> Exchange(Communicator comm, const RankGpu& mine, Duration stall_limit) {
  const std::string record = Encode(mine);
  std::string all(kRecordBytes * comm.size(), '\0');
  DDPRUN_RETURN_IF_ERROR(
      comm.AllGather(View(record), View(all)).Wait(std::chrono::steady_clock::now() + stall_limit),
      "agreeing on the device");
  std::vector<RankGpu> ranks;
  for (int r = 0; r < comm.size(); ++r)
    ranks.push_back(Decode(std::string_view(all).substr(r * kRecordBytes, kRecordBytes)));
  return ranks;
}

// Why the ranks cannot all use GPUs with --device=auto; empty if they can.
std::string WhyNot(std::span<const RankGpu> ranks) {
  std::map<std::string, size_t> rank_of_uuid;
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (!ranks[r].missing.empty()) return StrCat("rank ", r, " has no GPU: ", ranks[r].missing);
    const auto [other, is_new] = rank_of_uuid.emplace(ranks[r].uuid, r);
    if (!is_new) {
      return StrCat("ranks ", other->second, " and ", r, " have the same GPU, ", ranks[r].uuid,
                    ", which NCCL refuses: start one worker per GPU (--nproc-per-node=gpu)");
    }
  }
  return "";
}

}  // namespace

RankGpu FindGpu(const std::string& flag, int local_rank) {
  RankGpu mine;
  if (flag == "cpu") {
    mine.missing = "--device=cpu";
  } else if (StatusOr<RankGpu> found = Find(local_rank); found.ok()) {
    mine = *std::move(found);
  } else {
    mine.missing = std::string(found.status().message());
  }
  mine.flag = flag;
  return mine;
}

StatusOr<DeviceChoice> ChooseDevice(std::span<const RankGpu> ranks) {
  const std::string& flag = ranks[0].flag;
  for (size_t r = 1; r < ranks.size(); ++r) {
    if (ranks[r].flag == flag) continue;
    return InvalidArgumentError(StrCat("rank ", r, " has --device=", ranks[r].flag,
                                       ", but rank 0 has --device=", flag,
                                       ": start all with the same flags"));
  }
  if (flag == "cpu") return DeviceChoice{};
  if (flag == "cuda") {
    for (size_t r = 0; r < ranks.size(); ++r) {
      if (ranks[r].missing.empty()) continue;
      return FailedPreconditionError(StrCat("--device=cuda: rank ", r, " has no GPU: ", ranks[r].missing));
    }
    return DeviceChoice{.type = DeviceType::kCuda};
  }
  std::string reason = WhyNot(ranks);
  if (reason.empty()) return DeviceChoice{.type = DeviceType::kCuda};
  return DeviceChoice{.reason = std::move(reason)};
}

StatusOr<Communicator> ConnectOnDevice(Context& context, Communicator host, const std::string& flag,
                                       Duration stall_limit, std::ostream& out) {
  const RankGpu mine = FindGpu(flag, context.local_rank());
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<RankGpu> ranks, Exchange(host, mine, stall_limit));
  DDPRUN_ASSIGN_OR_RETURN(const DeviceChoice choice, ChooseDevice(ranks));
  const bool is_cuda = choice.type == DeviceType::kCuda;
  if (context.rank() == 0) {
    out << "event=device device=" << (is_cuda ? "cuda" : "cpu");
    if (is_cuda) out << " gpu=\"" << ranks[0].description << "\"";
    if (!choice.reason.empty()) out << " reason=\"" << choice.reason << "\"";
    out << std::endl;
  }
  if (!is_cuda) return host;
  return context.Connect({.device = {DeviceType::kCuda, -1}});
}

}  // namespace ddprun::train
