// Measures an all-reduce of floats or a message, or the limits of this machine for them. Prints the microseconds of one
// iteration: the median of each rank, and of these the largest.
//   collective_load all-reduce BYTES ITERATIONS   a worker: run it under ddprun
//   collective_load buffer BYTES ITERATIONS       likewise, with memory from Communicator::Allocate
//   collective_load ping-pong BYTES ITERATIONS    one of two workers: half the time of a message to the peer and back
//   collective_load round-trip ITERATIONS         two threads pass a cache line to each other and back
//   collective_load sum BYTES ITERATIONS          two threads add two buffers into both, half each: the least work of an
//                                                 all-reduce between two ranks of a node
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "ddprun/communicator.h"
#include "ddprun/context.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmUp = 5;

// Calls `f` and returns the median time of a call in microseconds.
template <typename F>
double MedianMicros(int iterations, F f) {
  std::vector<double> micros;
  for (int i = -kWarmUp; i < iterations; ++i) {
    const auto begin = Clock::now();
    f();
    if (i >= 0) micros.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  std::nth_element(micros.begin(), micros.begin() + micros.size() / 2, micros.end());
  return micros[micros.size() / 2];
}

void Require(const ddprun::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "collective_load: %s\n", status.ToString().c_str());
  std::exit(1);
}

void AllReduce(size_t bytes, int iterations, bool allocates) {
  ddprun::StatusOr<ddprun::Context> context = ddprun::Context::FromEnvironment();
  Require(context.status());
  ddprun::StatusOr<ddprun::Communicator> world = context->Connect();
  Require(world.status());
  std::vector<float> own(allocates ? 0 : bytes / sizeof(float));
  ddprun::Tensor elements = ddprun::View(own);
  ddprun::Buffer buffer;
  if (allocates) {
    auto allocated = world->Allocate(ddprun::DType::kFloat32, static_cast<int64_t>(bytes / sizeof(float)));
    Require(allocated.status());
    buffer = *std::move(allocated);
    elements = buffer.tensor();
  }
  const std::span<float> values(static_cast<float*>(elements.data), bytes / sizeof(float));
  std::ranges::fill(values, 1.0f);
  std::vector<double> micros = {
      MedianMicros(iterations, [&] { Require(world->AllReduce(elements, ddprun::ReduceOp::kMean).Wait()); })};
  if (std::any_of(values.begin(), values.end(), [](float v) { return v != 1.0f; })) {
    Require(ddprun::InternalError("the mean of ones is not one"));
  }
  Require(world->AllReduce(ddprun::View(micros), ddprun::ReduceOp::kMax).Wait());
  if (world->rank() == 0) std::printf("%.3f\n", micros[0]);
}

void PingPong(size_t bytes, int iterations) {
  ddprun::StatusOr<ddprun::Context> context = ddprun::Context::FromEnvironment();
  Require(context.status());
  ddprun::StatusOr<ddprun::Communicator> world = context->Connect();
  Require(world.status());
  const int rank = world->rank(), peer = 1 - rank;
  std::vector<char> message(bytes);
  const double micros = MedianMicros(iterations, [&] {
    if (rank == 0) Require(world->Send(ddprun::View(message), peer).Wait());
    Require(world->Receive(ddprun::View(message), peer).Wait());
    if (rank == 1) Require(world->Send(ddprun::View(message), peer).Wait());
  });
  if (rank == 0) std::printf("%.3f\n", micros / 2);
  Require(world->Barrier().Wait());
}

// Two threads that meet at each call of Meet.
class Meeting {
 public:
  void Meet(int thread) {
    const int turn = ++turns_[thread].value;
    arrived_[thread].value.store(turn, std::memory_order_release);
    while (arrived_[1 - thread].value.load(std::memory_order_acquire) < turn) __builtin_ia32_pause();
  }

 private:
  struct alignas(128) Count {
    int value = 0;
  };
  struct alignas(128) Shared {
    std::atomic<int> value{0};
  };
  Count turns_[2];
  Shared arrived_[2];
};

void RoundTrip(int iterations) {
  alignas(128) std::atomic<int> ball{0};
  std::thread other([&] {
    for (int i = 0; i < iterations + kWarmUp; ++i) {
      while (ball.load(std::memory_order_acquire) != 2 * i + 1) __builtin_ia32_pause();
      ball.store(2 * i + 2, std::memory_order_release);
    }
  });
  int i = 0;
  const double micros = MedianMicros(iterations, [&] {
    ball.store(2 * i + 1, std::memory_order_release);
    while (ball.load(std::memory_order_acquire) != 2 * i + 2) __builtin_ia32_pause();
    ++i;
  });
  other.join();
  std::printf("%.3f\n", micros);
}

void Sum(size_t bytes, int iterations) {
  const size_t n = bytes / sizeof(float);
  std::vector<float> buffers[2] = {std::vector<float>(n, 1.0f), std::vector<float>(n, 1.0f)};
  Meeting meeting;
  double micros[2];
  const auto run = [&](int thread) {
    micros[thread] = MedianMicros(iterations, [&] {
      meeting.Meet(thread);
      float* a = buffers[0].data();
      float* b = buffers[1].data();
      const size_t begin = thread == 0 ? 0 : n / 2, end = thread == 0 ? n / 2 : n;
#pragma GCC ivdep
      for (size_t i = begin; i < end; ++i) a[i] = b[i] = (a[i] + b[i]) * 0.5f;
      meeting.Meet(thread);
    });
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  std::printf("%.3f\n", std::max(micros[0], micros[1]));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  const auto number = [&](int i) { return std::atol(argv[i]); };
  if ((what == "all-reduce" || what == "buffer") && argc == 4 && number(2) >= 4 && number(3) >= 1) {
    AllReduce(number(2), static_cast<int>(number(3)), what == "buffer");
  } else if (what == "ping-pong" && argc == 4 && number(2) >= 0 && number(3) >= 1) {
    PingPong(number(2), static_cast<int>(number(3)));
  } else if (what == "sum" && argc == 4 && number(2) >= 4 && number(3) >= 1) {
    Sum(number(2), static_cast<int>(number(3)));
  } else if (what == "round-trip" && argc == 3 && number(2) >= 1) {
    RoundTrip(static_cast<int>(number(2)));
  } else {
    std::fprintf(stderr,
                 "usage: collective_load all-reduce|buffer|ping-pong|sum BYTES ITERATIONS | "
                 "round-trip ITERATIONS\n");
    return 2;
  }
}
