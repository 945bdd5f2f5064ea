#include "worker_sdk/comm/host/scenario_operations.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>

#include "worker_sdk/comm/host/rank_scenarios.h"
#include "worker_sdk/comm/testing/reference.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using internal::OpKind;

// The seed of the input of `rank` to operation `index`: every rank can compute the inputs of all ranks.
uint64_t SeedOf(int rank, int index) {
  return 1000 * static_cast<uint64_t>(index) + static_cast<uint64_t>(rank);
}

Tensor Elements(std::vector<char>& bytes, DType dtype) {
  return {bytes.data(), static_cast<int64_t>(bytes.size()) / SizeOf(dtype), dtype};
}

std::vector<char> Part(const std::vector<char>& bytes, int part, int num_parts) {
  const auto size = static_cast<std::ptrdiff_t>(bytes.size()) / num_parts;
  return {bytes.begin() + part * size, bytes.begin() + (part + 1) * size};
}

}  // namespace

int Fail(const RankProcess& self, std::string_view what) {
  std::fprintf(stderr, "rank %d: %s\n", static_cast<int>(self.options.rank.value()),
               std::string(what).c_str());
  return kWrongResult;
}

int Report(const RankProcess& self, const Status& status) {
  FakeFileStore store(self.store_dir);
  (void)store.Set(StrCat("outcome/", self.options.rank.value()), status.ToString());
  return kEnded;
}

std::unique_ptr<Started> StartOperation(Communicator& comm, OpKind kind, DType dtype, ReduceOp op, int root,
                                        size_t n, bool in_place, int index) {
  const int rank = comm.rank(), world = comm.size();
  const bool has_parts = kind == OpKind::kReduceScatter || kind == OpKind::kAllToAll;
  std::vector<std::vector<char>> inputs;
  for (int r = 0; r < world; ++r)
    inputs.push_back(RandomElements(dtype, SeedOf(r, index), has_parts ? n * world : n));
  auto started = std::make_unique<Started>();
  started->input = inputs[rank];
  started->output.resize(n * SizeOf(dtype));
  const auto in = [&] { return Elements(started->input, dtype); };
  const auto out = [&] { return Elements(started->output, dtype); };
  switch (kind) {
    case OpKind::kAllReduce:
      started->expected = ReferenceReduction(dtype, op, inputs);
      if (in_place) {
        started->output = inputs[rank];
        started->work = comm.AllReduce(out(), op);
      } else {
        started->work = comm.AllReduce(in(), out(), op);
      }
      break;
    case OpKind::kReduce:
      started->expected = rank == root ? ReferenceReduction(dtype, op, inputs) : started->output;
      started->work = comm.Reduce(in(), out(), op, root);
      break;
    case OpKind::kReduceScatter:
      started->expected = Part(ReferenceReduction(dtype, op, inputs), rank, world);
      started->work = comm.ReduceScatter(in(), out(), op);
      break;
    case OpKind::kAllGather:
      for (const auto& input : inputs) {
        started->expected.insert(started->expected.end(), input.begin(), input.end());
      }
      started->output.resize(started->expected.size());
      started->work = comm.AllGather(in(), out());
      break;
    case OpKind::kAllToAll:
      for (const auto& input : inputs) {
        const std::vector<char> part = Part(input, rank, world);
        started->expected.insert(started->expected.end(), part.begin(), part.end());
      }
      started->output.resize(started->expected.size());
      started->work = comm.AllToAll(in(), out());
      break;
    case OpKind::kBroadcast:
      started->expected = inputs[root];
      started->output = inputs[rank];
      started->work = comm.Broadcast(out(), root);
      break;
    case OpKind::kBarrier:
      started->output.clear();
      started->work = comm.Barrier();
      break;
    case OpKind::kSend:
    case OpKind::kReceive:
      break;  // in message_scenarios.cc
  }
  return started;
}

Status Finish(Started& started) {
  DDPRUN_RETURN_IF_ERROR(started.work.Wait(Soon()));
  if (!started.work.Done()) return InternalError("Done() is false after Wait()");
  return started.output == started.expected ? OkStatus() : InternalError("wrong result");
}

std::unique_ptr<Started> StartRandom(Communicator& comm, int index, std::mt19937& random) {
  const auto kind = static_cast<OpKind>(random() % 7);
  const DType dtype = kAllDTypes[random() % std::size(kAllDTypes)];
  ReduceOp op = kAllReduceOps[random() % std::size(kAllReduceOps)];
  if (!IsDefined(dtype, op)) op = ReduceOp::kSum;
  const int root = static_cast<int>(random() % comm.size());
  const size_t n = random() % 4 == 0 ? random() % 4 : random() % 3000;  // a chunk has 4096 bytes
  return StartOperation(comm, kind, dtype, op, root, n, /*in_place=*/random() % 2 == 0, index);
}

}  // namespace ddprun
