// A register whose calls return their results, for tests.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/time.h"
#include "boost/asio/executor_work_guard.hpp"
#include "boost/asio/io_context.hpp"
#include "gtest/gtest.h"
#include "rendezvous/charter/charter_register.h"

namespace ddprun {

//   Threads: one caller at a time, which also runs the io_context.
class RegisterCaller {
 public:
  using Opener = std::function<std::unique_ptr<CharterRegister>(boost::asio::io_context& io)>;
  explicit RegisterCaller(const Opener& open) : register_(open(io_)) {}

  absl::StatusOr<RegisterRecord> Read(Duration limit = seconds(20)) {
    return Call<RegisterRecord>(limit, [&](auto done) { register_->Read(limit, std::move(done)); });
  }
  absl::StatusOr<SwapResult> Swap(const RegisterRecord& expected, const std::string& lead,
                                  const std::optional<std::string>& charter = std::nullopt,
                                  Duration limit = seconds(20)) {
    return Call<SwapResult>(
        limit, [&](auto done) { register_->Swap(expected, lead, charter, limit, std::move(done)); });
  }
  // Swaps and returns the new record. Fails the test if the swap is refused.
  RegisterRecord MustSwap(const RegisterRecord& expected, const std::string& lead,
                          const std::optional<std::string>& charter = std::nullopt) {
    absl::StatusOr<SwapResult> result = Swap(expected, lead, charter);
    if (!result.ok() || !result->swapped) {
      ADD_FAILURE() << "swap to " << lead << ": " << (result.ok() ? "refused" : result.status().ToString());
      return {};
    }
    return result->current;
  }
  RegisterRecord MustRead() {
    absl::StatusOr<RegisterRecord> record = Read();
    if (!record.ok()) {
      ADD_FAILURE() << record.status();
      return {};
    }
    return *std::move(record);
  }

  boost::asio::io_context& io() { return io_; }
  CharterRegister& get() { return *register_; }
  void Close() { register_ = nullptr; }

 private:
  // What a call with a limit may take in addition, on a busy machine.
  static constexpr Duration kLate = seconds(10);

  template <typename Result, typename F>
  absl::StatusOr<Result> Call(Duration limit, F start) {
    std::optional<absl::StatusOr<Result>> result;
    int calls = 0;
    bool within = true;
    const TimePoint deadline = std::chrono::steady_clock::now() + limit + kLate;
    io_.restart();
    start([&](absl::StatusOr<Result> got) {
      EXPECT_FALSE(within) << "the callback was called within the call";
      EXPECT_EQ(++calls, 1);
      result = std::move(got);
    });
    within = false;
    while (!result && io_.run_one_until(deadline) > 0) {
    }
    if (!result) {
      ADD_FAILURE() << "no callback " << ToMillis(kLate) << " ms after the limit";
      return absl::InternalError("no callback");
    }
    io_.poll();  // a second callback that is due
    return *std::move(result);
  }

  boost::asio::io_context io_{1};
  // Without it, run_one_until returns while only other threads have something to do.
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_ =
      boost::asio::make_work_guard(io_);
  std::unique_ptr<CharterRegister> register_;
};

}  // namespace ddprun
