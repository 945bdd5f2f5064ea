#include "worker_sdk/comm/nccl/testing/message_contract.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ddprun/communicator.h"
#include "ddprun/status.h"

namespace ddprun {
namespace {

constexpr size_t kLarge = (5 << 19) + 3;  // more than two windows, and more than a ring

std::vector<uint8_t> Payload(size_t n, int seed) {
  std::vector<uint8_t> bytes(n);
  uint64_t x = seed * 2654435761 + 1;
  for (uint8_t& b : bytes) {
    x = x * 6364136223846793005 + 1442695040888963407;
    b = static_cast<uint8_t>(x >> 56);
  }
  return bytes;
}

// A message on this rank: memory of the GPU or of the host.
struct Pending {
  Work work;
  Tensor on_gpu;
  std::vector<uint8_t> on_host, expected;
  std::string name;
};

}  // namespace

void RanksOfARingSendFirst(GpuRank& gpu) {
  const int n = gpu.comm.size(), r = gpu.comm.rank();
  if (n == 1) return;
  const int next = (r + 1) % n, previous = (r + n - 1) % n;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{8}, size_t{4096}, size_t{300'001}, kLarge}) {
    const Tensor out = gpu.Put(Payload(size, r));
    const Tensor in = gpu.Put(std::vector<uint8_t>(size)), again = gpu.Put(std::vector<uint8_t>(size));
    Work works[] = {gpu.comm.Send(out, next, gpu.on()), gpu.comm.Send(out, next, gpu.on()),
                    gpu.comm.Receive(in, previous, gpu.on()), gpu.comm.Receive(again, previous, gpu.on())};
    for (Work& work : works) EXPECT_EQ(work.Wait(), OkStatus()) << size;
    for (Work& work : works) EXPECT_TRUE(work.Done());
    EXPECT_TRUE(gpu.Get<uint8_t>(in) == Payload(size, previous)) << size;
    EXPECT_TRUE(gpu.Get<uint8_t>(again) == Payload(size, previous)) << size;
  }
}

void LargeMessagesOfAllPairsAreInFlightTogether(GpuRank& gpu) {
  const int n = gpu.comm.size(), r = gpu.comm.rank();
  std::vector<Work> works;
  std::vector<std::pair<int, Tensor>> received;
  for (int other = 0; other < n; ++other) {
    if (other != r) works.push_back(gpu.comm.Send(gpu.Put(Payload(kLarge, n * r + other)), other, gpu.on()));
  }
  const Tensor sum = gpu.Put<float>({1});
  works.push_back(gpu.comm.AllReduce(sum, ReduceOp::kSum, gpu.on()));
  for (int other = 0; other < n; ++other) {
    if (other == r) continue;
    received.emplace_back(other, gpu.Put(std::vector<uint8_t>(kLarge)));
    works.push_back(gpu.comm.Receive(received.back().second, other, gpu.on()));
  }
  for (Work& work : works) EXPECT_EQ(work.Wait(), OkStatus());
  for (const auto& [other, tensor] : received)
    EXPECT_TRUE(gpu.Get<uint8_t>(tensor) == Payload(kLarge, n * other + r)) << other;
  EXPECT_EQ(gpu.Get(sum), std::vector<float>{static_cast<float>(n)});
}

// All ranks know one list of messages between random pairs. Each end is on the host or on the GPU.
void MessagesOfBothKindsMatchInTheirOrder(GpuRank& gpu) {
  const int n = gpu.comm.size(), r = gpu.comm.rank();
  if (n == 1) return;
  std::mt19937 random(n);      // equal on all ranks
  std::mt19937 own(1000 + r);  // of this rank
  std::vector<Pending> in_flight;
  const auto finish = [&] {
    std::shuffle(in_flight.begin(), in_flight.end(), own);
    for (Pending& p : in_flight) {
      EXPECT_EQ(p.work.Wait(), OkStatus()) << p.name;
      EXPECT_TRUE((p.on_gpu.data == nullptr ? p.on_host : gpu.Get<uint8_t>(p.on_gpu)) == p.expected)
          << p.name;
    }
    in_flight.clear();
  };
  for (int i = 0; i < 60; ++i) {
    const int from = static_cast<int>(random() % n),
              to = (from + 1 + static_cast<int>(random() % (n - 1))) % n;
    const size_t size = random() % 8 == 0 ? random() % 200'000 : 1 + random() % 5000;
    const bool on_gpu = own() % 2 == 0, sends = from == r;
    if (!sends && to != r) continue;
    Pending& p = in_flight.emplace_back();
    p.name = "message " + std::to_string(i) + (on_gpu ? " of the GPU" : " of the host");
    p.expected = Payload(size, i);
    std::vector<uint8_t> bytes = sends ? p.expected : std::vector<uint8_t>(size);
    if (on_gpu) {
      p.on_gpu = gpu.Put(bytes);
      p.work = sends ? gpu.comm.Send(p.on_gpu, to, gpu.on()) : gpu.comm.Receive(p.on_gpu, from, gpu.on());
    } else {
      p.on_host = std::move(bytes);
      p.work = sends ? gpu.comm.Send(View(p.on_host), to) : gpu.comm.Receive(View(p.on_host), from);
    }
    if (own() % 6 == 0) finish();
  }
  finish();
}

// A token goes around, and each rank adds to it; the host waits only where it must.
void StreamsWaitForMessages(GpuRank& gpu) {
  const int n = gpu.comm.size(), r = gpu.comm.rank();
  if (n == 1) return;
  const int next = (r + 1) % n, previous = (r + n - 1) % n;
  constexpr size_t kCount = 400'000;
  for (int i = 0; i < 3; ++i) {
    // The copy to `out` is still in the stream when the message starts.
    const Tensor out = gpu.Put(std::vector<int32_t>(kCount, 10 * i + r));
    const Tensor in = gpu.Put(std::vector<int32_t>(kCount, -1));
    Work sent = gpu.comm.Send(out, next, gpu.on());
    Work received = gpu.comm.Receive(in, previous, gpu.on());
    // Overwrites what was sent, after it was read.
    EXPECT_EQ(sent.WaitOn(gpu.AnotherStream()), OkStatus());
    gpu.Write(out, std::vector<int32_t>(kCount, -2), gpu.AnotherStream());
    EXPECT_EQ(received.WaitOn(gpu.stream()), OkStatus());
    EXPECT_EQ(gpu.Get<int32_t>(in), std::vector<int32_t>(kCount, 10 * i + previous));
    EXPECT_EQ(sent.Wait(), OkStatus());
    EXPECT_EQ(received.Wait(), OkStatus());
    EXPECT_EQ(received.WaitOn(gpu.stream()), OkStatus());
    EXPECT_EQ(received.WaitOn({}).code(), StatusCode::kInvalidArgument);
  }
  gpu.Synchronize();
}

void PartsHaveMessagesOfTheirOwn(GpuRank& gpu) {
  const int n = gpu.comm.size(), r = gpu.comm.rank();
  StatusOr<Communicator> part = gpu.comm.Split(0, -r);  // in the opposite order
  ASSERT_TRUE(part.ok()) << part.status();
  if (n == 1) return;
  std::vector<Work> works;
  Tensor of_world = gpu.Put<int32_t>({0}), of_part = gpu.Put<int32_t>({0});
  if (r == 0) works.push_back(gpu.comm.Send(gpu.Put<int32_t>({1}), n - 1, gpu.on()));
  if (r == 0) works.push_back(part->Send(gpu.Put<int32_t>({2}), 0, gpu.on()));
  // The group's message first.
  if (r == n - 1) works.push_back(part->Receive(of_part, n - 1, gpu.on()));
  if (r == n - 1) works.push_back(gpu.comm.Receive(of_world, 0, gpu.on()));
  for (Work& work : works) EXPECT_EQ(work.Wait(), OkStatus());
  if (r != n - 1) return;
  EXPECT_EQ(gpu.Get<int32_t>(of_world), std::vector<int32_t>{1});
  EXPECT_EQ(gpu.Get<int32_t>(of_part), std::vector<int32_t>{2});
}

}  // namespace ddprun
