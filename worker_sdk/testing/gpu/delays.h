// Random delays of one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <random>
#include <thread>

#include "worker_sdk/testing/gpu/settings.h"

namespace ddprun::stand_in {

//   Threads: one caller at a time.
class Delays {
 public:
  // Threads with different numbers have different delays.
  explicit Delays(uint64_t number) : random_(TheSettings().seed * 0x9E3779B97F4A7C15u + number) {}

  // Usually returns at once; otherwise most delays are short, and the longest is max_delay_us.
  void Pause() {
    const double x = Uniform();
    if (x < 0.6) return std::this_thread::yield();
    const double y = Uniform();
    std::this_thread::sleep_for(std::chrono::microseconds(int64_t(y * y * y * TheSettings().max_delay_us)));
  }
  // Of an asynchronous error.
  std::chrono::microseconds OfError() {
    return std::chrono::microseconds(int64_t(Uniform() * 1000 * TheSettings().max_error_delay_ms));
  }

 private:
  double Uniform() { return std::uniform_real_distribution<double>()(random_); }

  std::mt19937_64 random_;
};

}  // namespace ddprun::stand_in
