// A register in the memory of a test.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/alive.h"
#include "base/time.h"
#include "rendezvous/charter/charter_register.h"

namespace ddprun {

// The record that several MemoryRegisters share.
struct MemoryRecord {
  std::function<void(std::function<void()>)> post;  // calls the argument later
  RegisterRecord record = {.version = 7};
};

// Answers at once, by `post`.
class MemoryRegister final : public CharterRegister {
 public:
  // post: instead of that of the record.
  explicit MemoryRegister(MemoryRecord* shared,
                          const std::function<void(std::function<void()>)>& post = nullptr)
      : shared_(*shared), post_(post ? post : shared->post) {}

  void Read(Duration /*limit*/, std::function<void(absl::StatusOr<RegisterRecord>)> done) override {
    post_(alive_.Guard([this, done = std::move(done)] {
      if (why.ok()) {
        done(shared_.record);
      } else {
        done(why);
      }
    }));
  }
  void Swap(const RegisterRecord& expected, std::string lead, std::optional<std::string> charter,
            Duration /*limit*/, std::function<void(absl::StatusOr<SwapResult>)> done) override {
    post_(alive_.Guard(
        [this, expected, lead = std::move(lead), charter = std::move(charter), done = std::move(done)] {
          if (!why.ok()) return done(why);
          RegisterRecord& record = shared_.record;
          if (record.exists != expected.exists || (record.exists && record.version != expected.version))
            return done(SwapResult{false, record});
          record = {record.version + 1, true, lead, charter.value_or(record.charter)};
          ++swaps;
          if (charter) ++charters;
          done(SwapResult{true, record});
        }));
  }

  absl::Status why;  // what it answers instead, if it is not OK
  int swaps = 0;     // that were carried out
  int charters = 0;  // of these, those with a charter

 private:
  MemoryRecord& shared_;
  const std::function<void(std::function<void()>)> post_;
  Alive alive_;
};

}  // namespace ddprun
